"""Why a shard was rejected, in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def reason_text(reasons: Sequence[Mapping[str, Any]]) -> str:
    """Return the first reason with its place, and how many more there are."""
    if not reasons:
        return "no reason on record"
    first = reasons[0]
    places = [("record", first.get("record_index")), ("byte", first.get("byte_offset"))]
    place = ", ".join(f"{name} {number}" for name, number in places if number is not None)
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return f"{first['message']}{f' [{place}]' if place else ''}{more}"
