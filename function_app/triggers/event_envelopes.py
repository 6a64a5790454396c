"""Envelopes of events: Event Grid's own schema and CloudEvents 1.0, one or several in a payload."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from function_app.errors import InvalidEventError

MAX_PAYLOAD_BYTES = 1 << 20
"""Event Grid's own limit for one event or batch."""
MAX_EVENTS = 1000
MAX_TEXT_CHARS = 16 << 10
"""A blob's name has up to 1,024 characters, each of up to four bytes, each percent-encoded in a subject."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """What both envelopes have in common."""

    id: str
    type: str
    subject: str
    data: Mapping[str, Any]


def read_events(payload: bytes | str) -> list[Event]:
    """Read the events of a payload. Raises InvalidEventError: trying again will not help."""
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise InvalidEventError(f"payload should be at most {MAX_PAYLOAD_BYTES} bytes, was {len(payload)}")
    try:
        document = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise InvalidEventError(f"payload should be JSON, was not: {error}") from error
    members = document if isinstance(document, list) else [document]
    if not 0 < len(members) <= MAX_EVENTS:
        raise InvalidEventError(f"payload should hold 1 to {MAX_EVENTS} events, held {len(members)}")
    return [event_of(member) for member in members]


def event_of(members: Any) -> Event:
    """Read one event of either envelope. Raises InvalidEventError."""
    if not isinstance(members, Mapping):
        raise InvalidEventError(f"an event should be a JSON object, was {type(members).__name__}")
    kind = "type" if "specversion" in members else "eventType"
    data = members.get("data")
    if not isinstance(data, Mapping):
        raise InvalidEventError(f"event {str(members.get('id'))[:100]}: data should be an object, was {data!r:.100}")
    texts = {"id": "id", "type": kind, "subject": "subject"}
    return Event(data=data, **{name: _text(members, member) for name, member in texts.items()})


def _text(members: Mapping[str, Any], name: str) -> str:
    value = members.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= MAX_TEXT_CHARS:
        raise InvalidEventError(f"event: {name} should be a text of 1 to {MAX_TEXT_CHARS}, was {str(value)[:100]!r}")
    return value
