"""Notifications to an Event Grid topic or a webhook, as CloudEvents."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
import uuid
from concurrent.futures import Future
from email.message import Message
from http.client import HTTPException
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit

from function_app.adapters.connections import credential
from function_app.domain.errors import NotificationError
from function_app.domain.outcomes import NO_LINKS, Links, explained
from function_app.domain.records import NotificationRecord
from function_app.ports import Notifier
from shared.traces import TRACEPARENT, place_of_content

if TYPE_CHECKING:
    from azure.core.messaging import CloudEvent
    from azure.eventgrid import EventGridPublisherClient

SOURCE = "/landfall"
CHECK_TYPE = "landfall.doctor"
"""Type of the check's event, which is not an outcome. Subscriptions that list types never receive it."""
OPTIONS: dict[str, Any] = {"connection_timeout": 5, "read_timeout": 30, "retry_total": 2}


class TopicNotifier:
    """Implements Notifier. The client is built at the first notification."""

    def __init__(self, endpoint: str, *, key: str | None, client_id: str | None, links: Links = NO_LINKS) -> None:
        self._endpoint = endpoint
        self._links = links
        self._key = key
        self._client_id = client_id
        self._client: EventGridPublisherClient | None = None
        self._lock = threading.Lock()

    def send(self, notification: NotificationRecord) -> None:
        """See Notifier. Subscribers recognise a repeated notification by its ``id``."""
        from azure.core.messaging import CloudEvent

        members = event_members(notification, self._links)
        event = CloudEvent(
            source=members["source"],
            type=members["type"],
            id=event_id(notification),
            time=notification.created_at,
            subject=members["subject"],
            datacontenttype=members["datacontenttype"],
            dataschema=members["dataschema"],
            data=members["data"],
            extensions={TRACEPARENT: members[TRACEPARENT]} if TRACEPARENT in members else None,
        )
        self._publish(event)

    def check(self) -> str:
        """Send an event of a separate type, which subscribers may exclude. Raises NotificationError.

        A real event is necessary, because a topic has no dry run and an assigned role may not be effective yet.
        """
        from azure.core.messaging import CloudEvent

        self._publish(
            CloudEvent(source=SOURCE, type=CHECK_TYPE, subject="doctor", data={"sent_by": "landfall doctor"})
        )
        return f"it took an event of type {CHECK_TYPE}"

    def _publish(self, event: CloudEvent[Any]) -> None:
        from azure.core.exceptions import AzureError

        try:
            self._publisher().send([event], **self._transport_options())
        except AzureError as error:
            detail = str(error).splitlines()[0][:300] if str(error) else type(error).__name__
            raise NotificationError(f"the topic at {urlsplit(self._endpoint).hostname} refused: {detail}") from error

    def _transport_options(self) -> dict[str, Any]:
        """Allow a token over plain http for loopback addresses, which the SDK refuses by default."""
        return {"enforce_https": False} if self._key is None and self._endpoint.startswith("http://") else {}

    def _publisher(self) -> EventGridPublisherClient:
        from azure.core.credentials import AzureKeyCredential
        from azure.eventgrid import EventGridPublisherClient

        with self._lock:
            if self._client is None:
                access = AzureKeyCredential(self._key) if self._key else credential(self._client_id)
                self._client = EventGridPublisherClient(self._endpoint, access, **OPTIONS)
            return self._client


TIMEOUT_S = 15
MAX_ANSWER_BYTES = 4096


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, so that a notification is sent only to the configured address."""

    def redirect_request(  # noqa: PLR0917 (urllib's own signature)
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        """Return None, so that the response becomes an error with the redirect's status."""


class WebhookNotifier:
    """Implements Notifier. The address is a secret, so no message contains it."""

    def __init__(self, url: str, links: Links = NO_LINKS) -> None:
        """Store an address that `settings.read_url` has checked."""
        self._url = url
        self._links = links
        handlers: tuple[Any, ...] = (_NoRedirect(),)
        if url.startswith("http://"):  # loopback: never through a proxy
            handlers = (*handlers, urllib.request.ProxyHandler({}))
        self._opener = urllib.request.build_opener(*handlers)

    def send(self, notification: NotificationRecord) -> None:
        """See Notifier. Receivers recognise a repeated notification by its ``id``."""
        body = json.dumps(event_members(notification, self._links)).encode()
        headers = {"Content-Type": "application/json", "Idempotency-Key": event_id(notification)}
        request = urllib.request.Request(self._url, data=body, headers=headers, method="POST")  # noqa: S310 (checked)
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as answer:
                _body(answer)
        except urllib.error.HTTPError as error:
            with error:
                seen = _body(error).decode(errors="replace")[:200]
            raise NotificationError(f"{notification.recipient} answered {error.code}: {seen!r}") from error
        except (OSError, ValueError, HTTPException) as error:
            raise NotificationError(f"{notification.recipient} did not answer: {type(error).__name__}") from error


def _body(answer: IO[bytes]) -> bytes:
    """Return the beginning of an answer's body; empty if it cannot be read, because the status alone decides."""
    try:
        return answer.read(MAX_ANSWER_BYTES)
    except (OSError, ValueError, HTTPException):
        return b""


LIMIT_S = 45.0
"""Time limit for a notification with name resolution and retries; the timeouts above apply to each step."""


class BoundedNotifier:
    """Implements Notifier around another one, with a time limit.

    A recipient that sends a byte every few seconds never reaches a socket timeout. A call beyond the limit continues
    in its thread. Until that thread ends, further notifications are refused at once, so that threads do not
    accumulate. If the call succeeds late, the next try notices that and sends nothing.
    """

    def __init__(self, notifier: Notifier, *, limit_s: float = LIMIT_S) -> None:
        self._notifier = notifier
        self._limit_s = limit_s
        self._lock = threading.Lock()
        self._left: tuple[str, Future[None]] | None = None
        """Key and outcome of a call that took too long."""

    def send(self, notification: NotificationRecord) -> None:
        """See Notifier."""
        with self._lock:
            left = self._left
            if left is not None and not left[1].done():
                raise NotificationError(f"{notification.recipient} has not answered an earlier notification yet")
            self._left = None
            if left is not None and left[0] == notification.key and left[1].exception() is None:
                return
            outcome: Future[None] = Future()
            self._left = (notification.key, outcome)
        threading.Thread(target=self._run, args=(notification, outcome), daemon=True).start()
        try:
            outcome.result(self._limit_s)
        except TimeoutError as error:
            if outcome.done():  # raised by the notifier
                self._forget(outcome)
                raise
            raise NotificationError(f"{notification.recipient} did not answer within {self._limit_s:g} s") from error
        except BaseException:
            self._forget(outcome)
            raise
        self._forget(outcome)

    def _run(self, notification: NotificationRecord, outcome: Future[None]) -> None:
        try:
            self._notifier.send(notification)
        except BaseException as error:  # noqa: BLE001 (raised where it is waited for)
            outcome.set_exception(error)
        else:
            outcome.set_result(None)

    def _forget(self, outcome: Future[None]) -> None:
        with self._lock:
            if self._left is not None and self._left[1] is outcome:
                self._left = None


_NAMESPACE = uuid.UUID("8c5a4b6e-5d0c-5f0e-9a43-3f0f5d4a7b11")
"""Arbitrary but fixed, because with another namespace repeated notifications would get new ids."""


def event_id(notification: NotificationRecord) -> str:
    """Return the event's id, which is derived from the idempotency key and thus the same at every try."""
    return str(uuid.uuid5(_NAMESPACE, notification.key))


def event_members(notification: NotificationRecord, links: Links = NO_LINKS) -> dict[str, Any]:
    """Return the members of a CloudEvent 1.0, with the tracing extension if it is about a run or a version.

    ``docs/events`` has the JSON Schema of each type.
    """
    content, outcome = notification.content, notification.outcome
    about = place_of_content(content)
    return {
        "specversion": "1.0",
        "id": event_id(notification),
        "type": f"landfall.{outcome}",
        "source": SOURCE,
        "subject": notification.subject,
        "time": notification.created_at.isoformat(),
        "datacontenttype": "application/json",
        "dataschema": f"urn:landfall:event:{outcome}:1",
        "data": {**content, **explained(outcome, notification.subject, content, links)},
        **({} if about is None else {TRACEPARENT: about.traceparent}),
    }
