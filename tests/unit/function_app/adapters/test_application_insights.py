"""What reaches Application Insights, by the real exporters: a server of this process takes it, or refuses it."""

from __future__ import annotations

import gzip
import json
import logging
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor

from function_app.adapters.log_lines import (
    FIELDS,
    MAX_LINE_CHARS,
    MAX_LINES_A_SECOND,
    LogLines,
    send_log_lines,
    stop_log_lines,
)
from function_app.adapters.telemetry import OpenTelemetrySink, to_application_insights
from function_app.telemetry import MAX_CHARS, Span, Telemetry
from shared.errors import LandfallError
from shared.traces import Place

PLACE = Place(trace_id="7" * 32, span_id="3" * 16)
NOW = datetime(2026, 11, 23, tzinfo=UTC)
SPAN = Span(name="doctor", place=PLACE, parent=None, started_at=NOW, ended_at=NOW)


class Ingestion:
    """What was sent, and with which status it is answered."""

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self.status = 200

    def take(self, items: list[dict[str, Any]]) -> bytes:
        """Return the service's own answer to what it takes."""
        self.items += items if self.status == 200 else []
        return json.dumps({"itemsReceived": len(items), "itemsAccepted": len(items), "errors": []}).encode()


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[Ingestion, str]]:
    """An ingestion endpoint with its connection string."""
    ingestion = Ingestion()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
            content = ingestion.take(json.loads(body))
            self.send_response(ingestion.status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    address = f"http://127.0.0.1:{http.server_port}/"
    yield ingestion, f"InstrumentationKey=00000000-0000-0000-0000-000000000000;IngestionEndpoint={address}"
    http.shutdown()
    http.server_close()


@pytest.fixture
def ingestion(server: tuple[Ingestion, str]) -> Ingestion:
    """The endpoint, empty, which takes everything."""
    found, _ = server
    found.items.clear()
    found.status = 200
    return found


@pytest.fixture(scope="module")
def sink(server: tuple[Ingestion, str]) -> Iterator[OpenTelemetrySink]:
    """The app's own sink, which sends to that endpoint."""
    found = to_application_insights(server[1])
    yield found
    found.shutdown()


@pytest.fixture
def lines(server: tuple[Ingestion, str]) -> Iterator[LogLines]:
    """The app's own handler, which sends its log lines to that endpoint."""
    yield send_log_lines(server[1])
    stop_log_lines()


@pytest.fixture
def logger() -> logging.Logger:
    """A logger of the app."""
    found = logging.getLogger("function_app.test")
    found.setLevel(logging.INFO)
    return found


def test_one_item_is_sent_at_once_and_can_be_looked_for(ingestion: Ingestion, sink: OpenTelemetrySink) -> None:
    """Its operation is its trace, which the query of `landfall doctor` names: a dependency, as all spans are."""
    assert "Application Insights took an item" == sink.deliver(SPAN)
    (item,) = ingestion.items
    assert (PLACE.trace_id, "RemoteDependencyData") == (item["tags"]["ai.operation.id"], item["data"]["baseType"])


@pytest.mark.parametrize("status", [400, 401, 403])
def test_an_item_that_is_refused_is_found(status: int, ingestion: Ingestion, sink: OpenTelemetrySink) -> None:
    """The exporter itself only logs it, so that a missing role loses all telemetry silently."""
    ingestion.status = status
    with pytest.raises(LandfallError, match="needs the role Monitoring Metrics Publisher"):
        sink.deliver(SPAN)


def test_a_log_line_has_its_fields_and_its_trace(
    ingestion: Ingestion, sink: OpenTelemetrySink, lines: LogLines, logger: logging.Logger
) -> None:
    """The line becomes a row of AppTraces, whose Properties the queries use."""
    stated = {name: f"the {name}" for name in FIELDS}
    with Telemetry(sink=sink).span("run event", PLACE):
        logger.warning("the job was lost", extra=stated)
    logger.info("digits/v1: 10 shards are accepted", extra={"action": "version_closed", "subject": "digits/v1"})
    lines.processor.force_flush()
    warned, said = (each for each in ingestion.items if each["data"]["baseType"] == "MessageData")
    assert ("the job was lost", 2, PLACE.trace_id) == (
        warned["data"]["baseData"]["message"],
        warned["data"]["baseData"]["severityLevel"],
        warned["tags"]["ai.operation.id"],
    )
    assert {f"landfall.{name}": f"the {name}" for name in FIELDS} == warned["data"]["baseData"]["properties"]
    assert {"landfall.action": "version_closed", "landfall.subject": "digits/v1"} == said["data"]["baseData"][
        "properties"
    ]
    assert "0" * 32 == said["tags"]["ai.operation.id"]


class Host(logging.Handler):
    """What the Functions host gets, whose handler is on the root logger."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the text."""
        self.lines.append(record.getMessage())


@pytest.mark.usefixtures("ingestion", "lines")
def test_a_line_is_paid_for_once_and_a_warning_does_not_depend_on_telemetry(logger: logging.Logger) -> None:
    """The host gets warnings and errors, and where no telemetry is sent every line."""
    host = Host()
    logging.getLogger().addHandler(host)
    try:
        logger.info("accepted")
        logger.warning("refused")
        assert ["refused"] == host.lines
        stop_log_lines()
        logger.info("accepted")
        assert ["refused", "accepted"] == host.lines
    finally:
        logging.getLogger().removeHandler(host)


def test_a_flood_of_lines_is_bounded_and_loses_no_warning(logger: logging.Logger) -> None:
    """The number of lines below a warning is limited per second; texts and fields are cut, and secrets masked."""
    kept: Any = InMemoryLogRecordExporter()  # type: ignore[no-untyped-call]
    now_s = [0.0]
    handler = LogLines(SimpleLogRecordProcessor(kept), seconds=lambda: now_s[0])
    logger.addHandler(handler)
    try:
        for _ in range(MAX_LINES_A_SECOND + 5):
            logger.info("accepted")
        logger.error(
            f"refused: Bearer abcdefghijklmnopqrstuvwxyz0123456789 {'x' * 5000}", extra={"subject": "s" * 5000}
        )
        now_s[0] = 1.0
        logger.info("accepted")
    finally:
        logger.removeHandler(handler)
    records = [each.log_record for each in kept.get_finished_logs()]
    assert (MAX_LINES_A_SECOND + 2, "refused: Bearer …") == (len(records), str(records[-2].body)[:17])
    assert (MAX_LINE_CHARS, MAX_CHARS) == (
        len(str(records[-2].body)),
        len((records[-2].attributes or {})["landfall.subject"]),
    )
