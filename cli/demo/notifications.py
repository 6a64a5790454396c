"""Which notifications the twin's recipients got."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from local_azure.twin.client import TwinClient
from local_azure.twin.places import PEOPLE_WEBHOOK

TOPIC, WEBHOOK = "Event Grid topic landfall", f"webhook {PEOPLE_WEBHOOK}"


def received(twin: TwinClient, subject: str) -> list[dict[str, Any]]:
    """Return what was received about a run or a version, by recipient, oldest first, repetitions included."""
    events = [(TOPIC, entry["event"]) for entry in twin.received()]
    events += [(WEBHOOK, event) for entry in twin.webhook_received() if (event := _event(entry)) is not None]
    return [_notification(recipient, event) for recipient, event in events if event.get("subject") == subject]


def _event(entry: dict[str, Any]) -> dict[str, Any] | None:
    """Return the CloudEvent of a request that the webhook took; None for any other request."""
    with contextlib.suppress(ValueError):  # somebody else's body
        event = json.loads(entry["body"])
        if entry["status"] < 300 and isinstance(event, dict):  # noqa: PLR2004 - it was answered with success
            return event
    return None


def _notification(recipient: str, event: dict[str, Any]) -> dict[str, Any]:
    return {
        "recipient": recipient,
        "outcome": str(event.get("type", "")).removeprefix("landfall."),
        "subject": event.get("subject"),
        "id": event.get("id"),
        "text": (event.get("data") or {}).get("text"),
    }
