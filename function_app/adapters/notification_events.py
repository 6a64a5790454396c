"""A notification as a CloudEvent: the same for every kind of recipient."""

from __future__ import annotations

import uuid
from typing import Any

from function_app.ledger import NotificationRecord

_NAMESPACE = uuid.UUID("8c5a4b6e-5d0c-5f0e-9a43-3f0f5d4a7b11")
"""Any fixed one will do; a changed one would make old notifications new."""


def event_id(notification: NotificationRecord) -> str:
    """Return the event's id, made of the idempotency key: the same at every try."""
    return str(uuid.uuid5(_NAMESPACE, notification.key))


def event_members(notification: NotificationRecord) -> dict[str, Any]:
    """Return the members of a CloudEvent 1.0."""
    return {
        "specversion": "1.0",
        "id": event_id(notification),
        "type": f"landfall.{notification.outcome}",
        "source": "/landfall",
        "subject": notification.subject,
        "time": notification.created_at.isoformat(),
        "datacontenttype": "application/json",
        "data": dict(notification.content),
    }
