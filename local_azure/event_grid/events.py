"""Events in both schemas: parse published events, and match them with subscriptions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from local_azure.event_grid.config import AdvancedFilter, SubscriptionConfig

Schema = Literal["event_grid", "cloud_events"]

MAX_BODY_BYTES = 1 << 20
"""Maximum size of a publish request and of an event: https://learn.microsoft.com/azure/event-grid/quotas-limits."""

_REQUIRED = {
    "event_grid": ("id", "subject", "eventType", "eventTime", "dataVersion"),
    "cloud_events": ("id", "source", "specversion", "type"),
}


class InvalidEventError(ValueError):
    """A published body is not an array of valid events; the message names the event and the problem."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """One event, as delivered."""

    schema: Schema
    body: dict[str, Any]
    published_at: datetime | None = None
    """When a topic accepted the event; None before that."""

    @property
    def type(self) -> str:
        """Type such as ``Microsoft.Storage.BlobCreated``."""
        return str(self.body["eventType" if self.schema == "event_grid" else "type"])

    @property
    def subject(self) -> str:
        """The subject; empty if a cloud event has none."""
        return str(self.body.get("subject") or "")

    @property
    def id(self) -> str:
        """The publisher's id of the event."""
        return str(self.body["id"])

    def as_json(self) -> str:
        """Return the event as compact JSON."""
        return json.dumps(self.body, separators=(",", ":"))


def parse_events(content_type: str, body: bytes, topic_id: str) -> list[Event]:
    """Return the events of a publish request. Raises InvalidEventError, which names the event and its problem."""
    schema: Schema = "cloud_events" if "cloudevents" in content_type.lower() else "event_grid"
    try:
        content = json.loads(body)
    except ValueError as error:
        raise InvalidEventError(f"the body must be JSON: {error}") from error
    items = content if isinstance(content, list) else [content]
    for index, item in enumerate(items):
        _check(index, item, schema)
    return [Event(schema=schema, body=_completed(item, schema, topic_id)) for item in items]


def matches(event: Event, subscription: SubscriptionConfig) -> bool:
    """Whether the subscription's filters accept the event. Case does not matter, as in Event Grid."""
    types = {one.lower() for one in subscription.included_event_types}
    subject = event.subject.lower()
    return (
        (not types or event.type.lower() in types)
        and subject.startswith(subscription.subject_begins_with.lower())
        and subject.endswith(subscription.subject_ends_with.lower())
        and all(_accepts(one, event) for one in subscription.advanced_filters)
    )


def _accepts(one: AdvancedFilter, event: Event) -> bool:
    """Whether an advanced filter accepts the event; not if the member is missing or is not a text."""
    data = event.body.get("data")
    member = data.get(one.key.removeprefix("data.")) if isinstance(data, dict) else None
    text = event.subject if one.key == "subject" else member
    if not isinstance(text, str):
        return False
    wanted = [value.lower() for value in one.values]
    return text.lower() in wanted if one.operator == "StringIn" else any(value in text.lower() for value in wanted)


def event_time(moment: datetime) -> str:
    """Return a time in Event Grid's format, with seven decimals and Z."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f0Z")


def _check(index: int, item: Any, schema: Schema) -> None:
    if not isinstance(item, dict):
        raise InvalidEventError(f"event {index} must be an object, not {type(item).__name__}")
    missing = [name for name in _REQUIRED[schema] if not isinstance(item.get(name), str)]
    if missing:
        raise InvalidEventError(f"event {index} must have the texts {', '.join(missing)} in the schema {schema}")


def _completed(item: dict[str, Any], schema: Schema, topic_id: str) -> dict[str, Any]:
    """Return the event with the members that Event Grid adds."""
    if schema == "cloud_events":
        return item
    return {**item, "topic": item.get("topic") or topic_id, "metadataVersion": item.get("metadataVersion") or "1"}
