"""The one clock for facts; durations are measured with ``time.monotonic``."""

from __future__ import annotations

from datetime import UTC, datetime


def utcnow() -> datetime:
    """Return the time now, aware, UTC."""
    return datetime.now(UTC)
