"""Spans and metrics, as the flows write them. Without a receiver they cost almost nothing.

No step depends on telemetry: a step continues if it fails. docs/observability.md lists every name.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from function_app.ports import Clock, utcnow
from shared.safe_text import mask_secrets, one_line
from shared.traces import Place

logger = logging.getLogger(__name__)

MAX_CHARS = 256
"""Maximum characters of an attribute: texts may be untrusted, and telemetry is billed by size."""
MAX_EVENTS = 20
"""History entries of one span."""
MAX_TRACED = 64
"""Approximate number of shards of a split that are always traced; the others are only counted."""
ANY_NAMES_TRACED = 16
"""One of this many shards is traced if the number of shards is unknown."""
Value = str | int | float | bool


@dataclass(frozen=True, kw_only=True)
class SpanEvent:
    """An entry of the history, as a part of the span in which it was recorded."""

    name: str
    at: datetime
    attributes: Mapping[str, Value]


@dataclass(kw_only=True)
class Span:
    """A part of a trace: what was done, from when to when."""

    name: str
    place: Place
    parent: Place | None
    started_at: datetime
    ended_at: datetime
    attributes: dict[str, Value] = field(default_factory=dict)
    events: list[SpanEvent] = field(default_factory=list)
    link: Place | None = None
    """The span that the sender of an event states."""
    error: str | None = None
    is_kept: bool = True
    """Whether the span is exported once it has ended."""
    held: list[Span] = field(default_factory=list)
    """Ended spans that are exported if this one is."""

    def set(self, **attributes: Value | None) -> None:
        """Add attributes; None is left out."""
        for name, value in attributes.items():
            if value is not None:
                self.attributes[f"landfall.{name}"] = value


class TelemetrySink(Protocol):
    """Where spans and metrics go."""

    def export(self, span: Span) -> None:
        """Take a span that has ended, without blocking."""

    def count(self, name: str, number: int, dimensions: Mapping[str, str]) -> None:
        """Add to a counter."""

    def measure(self, name: str, value: float, dimensions: Mapping[str, str]) -> None:
        """Add a value to a distribution."""

    def deliver(self, span: Span) -> str:
        """Send a span immediately and return its confirmation. Raises LandfallError if it is refused or lost."""


def is_traced(index: int, num_shards: int) -> bool:
    """Whether a shard's span is kept even without further steps; the same for each delivery of its event.

    ``num_shards`` is 0 where files have any names. Their index is a digest, whose last bits are even.
    """
    return index % (-(-num_shards // MAX_TRACED) or ANY_NAMES_TRACED) == 0


_current: ContextVar[Span | None] = ContextVar("span", default=None)


def current_place() -> Place | None:
    """Return the place of the span in which this step runs; None outside of any."""
    span = _current.get()
    return None if span is None else span.place


@dataclass(frozen=True, kw_only=True)
class Telemetry:
    """The interface for the flows. Without a sink every call returns immediately."""

    sink: TelemetrySink | None = None
    clock: Clock = utcnow

    @contextmanager
    def span(
        self, name: str, parent: Place | None, *, is_kept: bool = True, link: Place | None = None, **attributes: Value
    ) -> Iterator[Span | None]:
        """Trace a block below ``parent``; yield the span, or None if nothing is traced.

        A span that is not kept is still exported if it has children.
        """
        if self.sink is None or parent is None:
            yield None
            return
        now = self.clock()
        span = Span(
            name=name,
            place=parent.new_child(),
            parent=parent,
            started_at=now,
            ended_at=now,
            link=link,
            is_kept=is_kept,
        )
        span.set(**attributes)
        token = _current.set(span)
        try:
            yield span
        except Exception as error:
            span.error = f"{type(error).__name__}: {error}"
            span.set(error=span.error)
            raise
        finally:
            _current.reset(token)
            span.ended_at = self.clock()
            self.ended(span)

    def ended(self, span: Span) -> None:
        """Export a span that has ended and what it holds, or leave it to the current one if it is not kept."""
        if self.sink is None:
            return
        outer = _current.get()
        outer = outer if outer is not None and outer.place == span.parent else None
        if span.is_kept:
            for each in (span, *span.held):
                self._export(each)
            if outer is not None:
                outer.is_kept = True
        elif outer is not None:
            outer.held.append(span)

    def below(self, place: Place) -> Place:
        """Return the current span as a parent if it belongs to the trace of ``place``, otherwise ``place``."""
        current = _current.get()
        return current.place if current is not None and current.place.trace_id == place.trace_id else place

    def entry(self, action: str, subject: str, reason: str, at: datetime) -> None:
        """Count an entry of the history, and add it to the current span. The reason is one line without secrets."""
        if self.sink is None:
            return
        self.add("landfall.history", action=action)
        span = _current.get()
        if span is not None and len(span.events) < MAX_EVENTS:
            attributes = {"landfall.subject": subject[:MAX_CHARS], "landfall.reason": reason[:MAX_CHARS]}
            span.events.append(SpanEvent(name=action, at=at, attributes=attributes))

    def add(self, name: str, number: int = 1, **dimensions: str) -> None:
        """Add to a counter. Dimensions have few values, none of them chosen by an uploader."""
        if self.sink is not None:
            try:
                self.sink.count(name, number, dimensions)
            except Exception as error:  # noqa: BLE001 (whatever a sink raises, the step goes on)
                _report(type(error).__name__)

    def measure(self, name: str, value: float, **dimensions: str) -> None:
        """Add a value to a distribution. Dimensions are as those of a counter."""
        if self.sink is not None:
            try:
                self.sink.measure(name, value, dimensions)
            except Exception as error:  # noqa: BLE001 (see count)
                _report(type(error).__name__)

    def _export(self, span: Span) -> None:
        try:
            span.attributes = {name: _bounded(value) for name, value in span.attributes.items()}
            span.error = None if span.error is None else str(_bounded(span.error))
            self.sink.export(span)  # type: ignore[union-attr] # the callers have looked
        except Exception as error:  # noqa: BLE001 (see count)
            _report(type(error).__name__)


@functools.cache
def _report(error: str) -> None:
    """Log an error of sending telemetry, once for each kind, because it may happen for every shard."""
    logger.warning(f"telemetry is lost: {error}", extra={"action": "telemetry_lost"})


def _bounded(value: Value) -> Value:
    return one_line(mask_secrets(value))[:MAX_CHARS] if isinstance(value, str) else value
