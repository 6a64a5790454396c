"""Spans and metrics in OpenTelemetry's form: to Application Insights, or on the local twin into files.

What is sent waits in a bounded queue and leaves in a thread, which also imports the exporter: its import takes longer
than many invocations, and no step waits for telemetry.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

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
from shared.traces import Place

QUIET = (
    "APPLICATIONINSIGHTS_STATSBEAT_DISABLED_ALL",
    "APPLICATIONINSIGHTS_SDKSTATS_DISABLED",
    "APPLICATIONINSIGHTS_CONTROLPLANE_DISABLED",
    "APPLICATIONINSIGHTS_OPENTELEMETRY_RESOURCE_METRIC_DISABLED",
)
"""Variables that keep the exporter from sending statistics of itself to Microsoft and from asking for settings.

The last one keeps it from looking for a global provider, which there is not."""
RESOURCE = {"service.name": "landfall", "service.namespace": "landfall"}
SAMPLED = TraceFlags(TraceFlags.SAMPLED)


def to_application_insights(connection_string: str) -> OpenTelemetrySink:
    """Return what sends to Application Insights, with the identity that the app settings name."""

    def options() -> dict[str, Any]:
        for name in QUIET:
            os.environ.setdefault(name, "true")
        return {"connection_string": connection_string, "disable_offline_storage": True}

    def spans() -> SpanExporter:
        from azure.monitor.opentelemetry.exporter import AzureMonitorTraceExporter

        return AzureMonitorTraceExporter(**options())

    def metrics() -> MetricExporter:
        from azure.monitor.opentelemetry.exporter import AzureMonitorMetricExporter

        return AzureMonitorMetricExporter(**options())

    processor, reader = (
        BatchSpanProcessor(LateSpanExporter(spans)),
        PeriodicExportingMetricReader(LateMetricExporter(metrics)),
    )
    atexit.register(processor.shutdown)  # the provider of meters does the same by itself
    return OpenTelemetrySink(processor, reader)


def to_files(folder: Path) -> OpenTelemetrySink:
    """Return what writes each trace into a file of its own, and leaves out metrics."""
    return OpenTelemetrySink(SimpleSpanProcessor(FileSpanExporter(folder)))


class OpenTelemetrySink:
    """Implements TelemetrySink."""

    def __init__(self, processor: SpanProcessor, *readers: MetricReader) -> None:
        self._processor = processor
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

    def flush(self) -> None:
        """Send what waits."""
        self._processor.force_flush()
        self._meters.force_flush()

    def _instrument(self, name: str, create: Callable[[str], Any]) -> Any:
        with self._lock:
            if name not in self._instruments:
                self._instruments[name] = create(name)
            return self._instruments[name]

    def _readable(self, span: Span) -> ReadableSpan:
        return ReadableSpan(
            span.name,
            context=_context(span.place),
            parent=_context(span.parent) if span.parent else None,
            resource=self._resource,
            attributes=span.attributes,
            events=[Event(each.name, dict(each.attributes), _ns(each.at)) for each in span.events],
            links=[Link(_context(span.link))] if span.link else (),
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(),
            start_time=_ns(span.started_at),
            end_time=_ns(span.ended_at),
        )


def _context(place: Place) -> SpanContext:
    return SpanContext(int(place.trace_id, 16), int(place.span_id, 16), is_remote=False, trace_flags=SAMPLED)


def _ns(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000) * 1000


class FileSpanExporter(SpanExporter):
    """Appends each span to the file of its trace, as one line of JSON."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Write each span with one call, so that processes that write at the same time do not mix their lines."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for span in spans:
            with (self._folder / f"{span.context.trace_id:032x}.jsonl").open("ab", buffering=0) as file:
                file.write(span.to_json(indent=None).encode() + b"\n")
        return SpanExportResult.SUCCESS


class LateSpanExporter(SpanExporter):
    """Makes the exporter at the first export, in the thread that exports."""

    def __init__(self, make: Callable[[], SpanExporter]) -> None:
        self._make = make
        self._made: SpanExporter | None = None

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """See SpanExporter."""
        if self._made is None:
            self._made = self._make()
        return self._made.export(spans)

    def shutdown(self) -> None:
        """See SpanExporter."""
        if self._made is not None:
            self._made.shutdown()


class LateMetricExporter(MetricExporter):
    """Makes the exporter at the first export, in the thread that exports. Each export has what is new."""

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
