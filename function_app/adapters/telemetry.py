"""Spans and metrics in OpenTelemetry's format, sent to Application Insights or, on the local twin, written to files.

Items wait in a bounded queue, and a thread sends them, so that no step waits for telemetry. The thread also imports
the exporter, which takes longer than many invocations.
"""

from __future__ import annotations

import atexit
import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    MetricExporter,
    MetricExportResult,
    MetricReader,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Link, SpanContext, Status, StatusCode, TraceFlags

from function_app.telemetry import Span
from shared.errors import LandfallError
from shared.traces import Place

QUIET = (
    "APPLICATIONINSIGHTS_STATSBEAT_DISABLED_ALL",
    "APPLICATIONINSIGHTS_SDKSTATS_DISABLED",
    "APPLICATIONINSIGHTS_CONTROLPLANE_DISABLED",
    "APPLICATIONINSIGHTS_OPENTELEMETRY_RESOURCE_METRIC_DISABLED",
)
"""Variables that keep the exporter from sending statistics about itself to Microsoft and from requesting settings.

The last one keeps it from looking for a global provider, which does not exist."""
RESOURCE = {"service.name": "landfall", "service.namespace": "landfall"}
METRICS_FILE = "metrics.jsonl"
MAX_METRICS_BYTES = 16 << 20
"""At this size a file is renamed to ``metrics.1.jsonl``, which it replaces, and a new file is started."""
SAMPLED = TraceFlags(TraceFlags.SAMPLED)


def exporter_options(connection_string: str) -> dict[str, Any]:
    """Set the variables of exporters to Application Insights; return their options."""
    for name in QUIET:
        os.environ.setdefault(name, "true")
    return {"connection_string": connection_string, "disable_offline_storage": True}


def to_application_insights(connection_string: str) -> OpenTelemetrySink:
    """Return the sink that sends to Application Insights, with the identity in the app settings."""

    def spans() -> SpanExporter:
        from azure.monitor.opentelemetry.exporter import AzureMonitorTraceExporter

        return AzureMonitorTraceExporter(**exporter_options(connection_string))

    def metrics() -> MetricExporter:
        from azure.monitor.opentelemetry.exporter import AzureMonitorMetricExporter

        return AzureMonitorMetricExporter(**exporter_options(connection_string))

    exporter = LateSpanExporter(spans)
    processor, reader = BatchSpanProcessor(exporter), PeriodicExportingMetricReader(LateMetricExporter(metrics))
    atexit.register(processor.shutdown)  # The meter provider does this by itself.
    return OpenTelemetrySink(processor, exporter, reader)


def to_files(folder: Path) -> OpenTelemetrySink:
    """Return the sink that writes each trace into its own file, and all values of metrics into one file."""
    exporter = FileSpanExporter(folder)
    return FileSink(SimpleSpanProcessor(exporter), exporter, metrics=folder / METRICS_FILE)


class Delivers(Protocol):
    """An exporter that reports the result of one span."""

    def deliver(self, span: ReadableSpan) -> str:
        """See TelemetrySink."""


class OpenTelemetrySink:
    """Implements TelemetrySink."""

    def __init__(self, processor: SpanProcessor, exporter: Delivers, *readers: MetricReader) -> None:
        self._processor, self._exporter = processor, exporter
        self._resource = Resource(RESOURCE)
        self._meters = MeterProvider(readers, resource=self._resource)
        self._meter = self._meters.get_meter("landfall")
        self._instruments: dict[str, Any] = {}
        self._lock = threading.Lock()

    def export(self, span: Span) -> None:
        """See TelemetrySink."""
        self._processor.on_end(self._readable(span))

    def count(self, name: str, number: int, dimensions: Mapping[str, str]) -> None:
        """See TelemetrySink."""
        self._instrument(name, self._meter.create_counter).add(number, dict(dimensions))

    def measure(self, name: str, value: float, dimensions: Mapping[str, str]) -> None:
        """See TelemetrySink."""
        self._instrument(name, self._meter.create_histogram).record(value, dict(dimensions))

    def deliver(self, span: Span) -> str:
        """See TelemetrySink."""
        return self._exporter.deliver(self._readable(span))

    def flush(self) -> None:
        """Send waiting items."""
        self._processor.force_flush()
        self._meters.force_flush()

    def shutdown(self) -> None:
        """Send waiting items, and end the threads."""
        self._processor.shutdown()
        self._meters.shutdown()

    def _instrument(self, name: str, create: Callable[[str], Any]) -> Any:
        with self._lock:
            if name not in self._instruments:
                self._instruments[name] = create(name)
            return self._instruments[name]

    def _readable(self, span: Span) -> ReadableSpan:
        return ReadableSpan(
            span.name,
            context=span_context(span.place),
            parent=span_context(span.parent) if span.parent else None,
            resource=self._resource,
            attributes=span.attributes,
            events=[Event(each.name, dict(each.attributes), _ns(each.at)) for each in span.events],
            links=[Link(span_context(span.link))] if span.link else (),
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(),
            start_time=_ns(span.started_at),
            end_time=_ns(span.ended_at),
        )


class FileSink(OpenTelemetrySink):
    """Writes metrics immediately, so that people and tests do not wait for an interval."""

    def __init__(self, processor: SpanProcessor, exporter: Delivers, *, metrics: Path) -> None:
        super().__init__(processor, exporter)
        self._metrics = metrics

    def count(self, name: str, number: int, dimensions: Mapping[str, str]) -> None:
        """See TelemetrySink."""
        self._write(name, number, dimensions)

    def measure(self, name: str, value: float, dimensions: Mapping[str, str]) -> None:
        """See TelemetrySink."""
        self._write(name, value, dimensions)

    def _write(self, name: str, value: float, dimensions: Mapping[str, str]) -> None:
        at = datetime.now(UTC).isoformat()
        line = json.dumps({"at": at, "name": name, "value": value, "dimensions": dict(dimensions)})
        with self._lock:
            self._metrics.parent.mkdir(parents=True, exist_ok=True)
            with self._metrics.open("ab", buffering=0) as file:
                file.write(line.encode() + b"\n")
                is_full = file.tell() > MAX_METRICS_BYTES
            if is_full:
                self._metrics.replace(self._metrics.with_name("metrics.1.jsonl"))


def span_context(place: Place) -> SpanContext:
    """Return a place as an OpenTelemetry span context."""
    return SpanContext(int(place.trace_id, 16), int(place.span_id, 16), is_remote=False, trace_flags=SAMPLED)


def _ns(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000) * 1000


class FileSpanExporter(SpanExporter):
    """Appends each span to the file of its trace as one line of JSON."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Write each span with one call, so that concurrent processes do not mix their lines."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for span in spans:
            with self._file(span).open("ab", buffering=0) as file:
                file.write(span.to_json(indent=None).encode() + b"\n")
        return SpanExportResult.SUCCESS

    def deliver(self, span: ReadableSpan) -> str:
        """See TelemetrySink. The file is removed, so that a check leaves nothing behind."""
        file = self._file(span)
        try:
            self.export([span])
            found = file.read_text(encoding="utf-8")
            file.unlink()
        except OSError as error:
            raise LandfallError(f"traces cannot be written to {self._folder}: {error.strerror or error}") from error
        if f"{span.context.span_id:016x}" not in found:
            raise LandfallError(f"{file} was written and does not have the item")
        return f"written to {self._folder} and read back"

    def _file(self, span: ReadableSpan) -> Path:
        return self._folder / f"{span.context.trace_id:032x}.jsonl"


class LateSpanExporter(SpanExporter):
    """Creates the exporter at the first export, in the exporting thread."""

    def __init__(self, make: Callable[[], SpanExporter]) -> None:
        self._make = make
        self._made: SpanExporter | None = None
        self._lock = threading.Lock()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """See SpanExporter."""
        with self._lock:  # A check may create the exporter at the same time as the exporting thread.
            if self._made is None:
                self._made = self._make()
        return self._made.export(spans)

    def deliver(self, span: ReadableSpan) -> str:
        """See TelemetrySink. The exporter only logs why it failed."""
        if self.export([span]) is not SpanExportResult.SUCCESS:
            raise LandfallError(
                "Application Insights did not take an item. The app's identity needs the role Monitoring Metrics "
                "Publisher, which takes up to an hour to count; the app's log has the exporter's own words"
            )
        return "Application Insights took an item"

    def shutdown(self) -> None:
        """See SpanExporter."""
        if self._made is not None:
            self._made.shutdown()


class LateMetricExporter(MetricExporter):
    """Creates the exporter at the first export, in the exporting thread. Each export has only new values."""

    def __init__(self, make: Callable[[], MetricExporter]) -> None:
        from opentelemetry.sdk.metrics import Counter, Histogram

        super().__init__(
            preferred_temporality={
                Counter: AggregationTemporality.DELTA,
                Histogram: AggregationTemporality.DELTA,
            }
        )
        self._make = make
        self._made: MetricExporter | None = None

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> MetricExportResult:
        """See MetricExporter."""
        if self._made is None:
            self._made = self._make()
        return self._made.export(metrics_data, timeout_millis, **kwargs)

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """See MetricExporter."""
        return self._made is None or self._made.force_flush(timeout_millis)

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        """See MetricExporter."""
        if self._made is not None:
            self._made.shutdown(timeout_millis, **kwargs)
