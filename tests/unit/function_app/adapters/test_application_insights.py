"""What reaches Application Insights, by the real exporters: a server of this process takes it, or refuses it."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from function_app.adapters.telemetry import OpenTelemetrySink, to_application_insights
from function_app.telemetry import Span
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
def server() -> Iterator[tuple[Ingestion, OpenTelemetrySink]]:
    """An ingestion endpoint, and the app's own sink that sends to it."""
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
    connection = f"InstrumentationKey=00000000-0000-0000-0000-000000000000;IngestionEndpoint={address}"
    sink = to_application_insights(connection)
    yield ingestion, sink
    sink.shutdown()
    http.shutdown()
    http.server_close()


@pytest.fixture
def ingestion(server: tuple[Ingestion, OpenTelemetrySink]) -> Ingestion:
    """The endpoint, empty, which takes everything."""
    found, _ = server
    found.items.clear()
    found.status = 200
    return found


@pytest.fixture
def sink(server: tuple[Ingestion, OpenTelemetrySink]) -> OpenTelemetrySink:
    return server[1]


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
