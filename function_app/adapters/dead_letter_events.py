"""What Event Grid writes for an event that it gave up: the event, and beside its members the reason.

One blob holds a JSON array of events. Source of the members, in both spellings:
https://learn.microsoft.com/azure/event-grid/manage-event-delivery#use-dead-lettering (Event Grid's schema) and
https://learn.microsoft.com/azure/event-grid/cloud-event-schema (CloudEvents: extension names are lower case).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from function_app.adapters.ledger_bounds import MAX_PAYLOAD_CHARS
from function_app.dead_letters import RUN_CHANGED, SHARD_UPLOADED, GivenUp

MAX_EVENTS = 5000
"""Of a blob; more than Event Grid's own limit of a batch."""
UNKNOWN = "event-grid"
"""The source of what is no event of ours."""

_MEMBERS = frozenset(
    {"deadletterreason", "deliveryattempts", "lastdeliveryoutcome", "publishtime", "lastdeliveryattempttime"}
)
_MAX_TEXT_CHARS = 200


@dataclass(frozen=True, kw_only=True)
class Written:
    """When a blob was written, and the name of what was written then."""

    at: datetime
    etag: str


def events_given_up(text: str, *, name: str, written: Written) -> Iterator[GivenUp]:
    """Yield the events of one blob; one that cannot be understood is one letter."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        yield unreadable(text, f"{name} should hold a JSON array of events, does not: {error}", written)
        return
    events = document if isinstance(document, list) else [document]
    if len(events) > MAX_EVENTS or not all(isinstance(event, Mapping) for event in events):
        yield unreadable(text, f"{name} should hold at most {MAX_EVENTS} events, and nothing else", written)
        return
    for event in events:
        yield _given_up(event, written)


def unreadable(text: str, error: str, written: Written) -> GivenUp:
    """Return what is left to say of a blob that is not what Event Grid writes."""
    return GivenUp(
        source=UNKNOWN,
        payload=text,
        identity="",
        error=error,
        tries=0,
        died_at=written.at,
        death=written.etag,
        is_whole=False,
    )


def _given_up(event: Mapping[str, Any], written: Written) -> GivenUp:
    said = {name.lower(): value for name, value in event.items() if name.lower() in _MEMBERS}
    own = {name: value for name, value in event.items() if name.lower() not in _MEMBERS}
    payload = json.dumps(own, sort_keys=True)
    reason, outcome = _text(said.get("deadletterreason")), _text(said.get("lastdeliveryoutcome"))
    tries = said.get("deliveryattempts")
    return GivenUp(
        source=_source(_text(event.get("eventType") or event.get("type"))),
        payload=payload,
        identity=_text(event.get("id")),
        error=f"Event Grid gave up ({reason or 'no reason given'}), last outcome: {outcome or 'not stated'}",
        tries=tries if isinstance(tries, int) and 0 <= tries <= MAX_EVENTS else 0,
        died_at=_time(said.get("lastdeliveryattempttime")) or written.at,
        death=written.etag,
        is_whole=len(payload) <= MAX_PAYLOAD_CHARS,
    )


def _source(event_type: str) -> str:
    if event_type.startswith("Microsoft.Storage."):
        return SHARD_UPLOADED
    if event_type.startswith("Microsoft.MachineLearningServices.Run"):
        return RUN_CHANGED
    return event_type or UNKNOWN


def _text(value: object) -> str:
    return value[:_MAX_TEXT_CHARS] if isinstance(value, str) else ""


def _time(value: object) -> datetime | None:
    """Read a time as Event Grid writes it, with up to seven digits of a second; None where it is none."""
    try:
        time = datetime.fromisoformat(_text(value))
    except ValueError:
        return None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
