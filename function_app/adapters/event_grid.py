"""The Event Grid topic for notifications."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from function_app.adapters.credentials import credential
from function_app.adapters.notification_events import event_id, event_members
from function_app.errors import NotificationError
from function_app.ledger import NotificationRecord

if TYPE_CHECKING:
    from azure.eventgrid import EventGridPublisherClient

OPTIONS: dict[str, Any] = {"connection_timeout": 5, "read_timeout": 30, "retry_total": 2}


class TopicNotifier:
    """Implements Notifier; the client is built at the first notification."""

    def __init__(self, endpoint: str, *, key: str | None, client_id: str | None) -> None:
        self._endpoint = endpoint
        self._key = key
        self._client_id = client_id
        self._client: EventGridPublisherClient | None = None
        self._lock = threading.Lock()

    def send(self, notification: NotificationRecord) -> None:
        """See Notifier. Subscribers that get the same ``id`` twice have been told once."""
        from azure.core.exceptions import AzureError
        from azure.core.messaging import CloudEvent

        members = event_members(notification)
        event = CloudEvent(
            source=members["source"],
            type=members["type"],
            id=event_id(notification),
            time=notification.created_at,
            subject=members["subject"],
            datacontenttype=members["datacontenttype"],
            data=members["data"],
        )
        try:
            self._publisher().send([event], **self._transport_options())
        except AzureError as error:
            detail = str(error).splitlines()[0][:300] if str(error) else type(error).__name__
            raise NotificationError(f"the topic at {urlsplit(self._endpoint).hostname} refused: {detail}") from error

    def _transport_options(self) -> dict[str, Any]:
        """A token over plain http is refused by the SDK, and rightly; this machine's loopback is the exception."""
        return {"enforce_https": False} if self._key is None and self._endpoint.startswith("http://") else {}

    def _publisher(self) -> EventGridPublisherClient:
        from azure.core.credentials import AzureKeyCredential
        from azure.eventgrid import EventGridPublisherClient

        with self._lock:
            if self._client is None:
                access = AzureKeyCredential(self._key) if self._key else credential(self._client_id)
                self._client = EventGridPublisherClient(self._endpoint, access, **OPTIONS)
            return self._client
