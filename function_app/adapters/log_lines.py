"""Log lines with their fields, as rows of AppTraces for queries. The Functions host sends only text."""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Callable, Sequence

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.sdk._logs import LogRecordProcessor, ReadableLogRecord, ReadWriteLogRecord
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, LogRecordExporter, LogRecordExportResult
from opentelemetry.sdk.resources import Resource
from opentelemetry.trace import NonRecordingSpan, set_span_in_context

from function_app.adapters.telemetry import RESOURCE, exporter_options, span_context
from function_app.telemetry import MAX_CHARS, current_place

LOGGER = "function_app"
FIELDS = ("action", "subject", "run_id")
"""Fields of a line in addition to its text."""
MAX_LINE_CHARS = 2000
MAX_LINES_A_SECOND = 20
"""Maximum lines below warning level per second and process, about the host's sampling rate."""
SEVERITIES = (
    (logging.CRITICAL, SeverityNumber.FATAL),
    (logging.ERROR, SeverityNumber.ERROR),
    (logging.WARNING, SeverityNumber.WARN),
    (logging.INFO, SeverityNumber.INFO),
)


class LogLines(logging.Handler):
    """Sends the app's log lines with their fields.

    Lines below warning level are sent only this way, so that they are not billed twice. The host also logs warnings
    and errors, so that they are visible even if telemetry fails.
    """

    def __init__(self, processor: LogRecordProcessor, *, seconds: Callable[[], float] = time.monotonic) -> None:
        super().__init__(logging.INFO)
        self.processor, self._seconds = processor, seconds
        self._resource = Resource(RESOURCE)
        self._second, self._sent = 0, 0

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler, which holds a lock during the call."""
        if record.levelno >= logging.WARNING:
            logging.getLogger().handle(record)
        elif not self._has_room():
            return
        try:
            self.processor.on_emit(ReadWriteLogRecord(_log_record(record), self._resource))
        except Exception:  # noqa: BLE001 (as every handler: the line is lost, the step goes on)
            self.handleError(record)

    def _has_room(self) -> bool:
        second = int(self._seconds())
        self._sent = self._sent + 1 if second == self._second else 1
        self._second = second
        return self._sent <= MAX_LINES_A_SECOND


def _log_record(record: logging.LogRecord) -> LogRecord:
    """Return a line as an OpenTelemetry record in the current trace."""
    place = current_place()
    stated = {name: getattr(record, name, None) for name in FIELDS}
    return LogRecord(
        timestamp=int(record.created * 1e9),
        context=None if place is None else set_span_in_context(NonRecordingSpan(span_context(place))),
        severity_number=next(number for level, number in SEVERITIES if record.levelno >= level),
        severity_text=record.levelname,
        body=_text(record)[:MAX_LINE_CHARS],
        attributes={f"landfall.{name}": str(value)[:MAX_CHARS] for name, value in stated.items() if value},
    )


def _text(record: logging.LogRecord) -> str:
    """Return the text, with the stack trace if there is one."""
    trace = record.exc_text or (record.exc_info and logging.Formatter().formatException(record.exc_info))
    return f"{record.getMessage()}\n{trace}" if trace else record.getMessage()


def send_log_lines(connection_string: str) -> LogLines:
    """From now on, send the lines of the app's loggers to Application Insights."""

    def exporter() -> LogRecordExporter:
        from azure.monitor.opentelemetry.exporter import AzureMonitorLogExporter

        return AzureMonitorLogExporter(**exporter_options(connection_string))

    lines, logger = LogLines(BatchLogRecordProcessor(LateLogExporter(exporter))), logging.getLogger(LOGGER)
    stop_log_lines()
    atexit.register(lines.processor.shutdown)
    logger.addHandler(lines)
    logger.propagate = False
    return lines


def stop_log_lines() -> None:
    """From now on, pass every line to the host again."""
    logger = logging.getLogger(LOGGER)
    for each in [handler for handler in logger.handlers if isinstance(handler, LogLines)]:
        logger.removeHandler(each)
        each.processor.shutdown()
    logger.propagate = True


class LateLogExporter(LogRecordExporter):
    """Creates the exporter at the first export, in the exporting thread."""

    def __init__(self, make: Callable[[], LogRecordExporter]) -> None:
        self._make = make
        self._made: LogRecordExporter | None = None
        self._lock = threading.Lock()

    def export(self, batch: Sequence[ReadableLogRecord]) -> LogRecordExportResult:
        """See LogRecordExporter."""
        with self._lock:
            if self._made is None:
                self._made = self._make()
        return self._made.export(batch)

    def force_flush(self, timeout_millis: int = 10_000) -> bool:
        """See LogRecordExporter. No lines are buffered here."""
        del timeout_millis
        return True

    def shutdown(self) -> None:
        """See LogRecordExporter."""
        if self._made is not None:
            self._made.shutdown()  # type: ignore[no-untyped-call]
