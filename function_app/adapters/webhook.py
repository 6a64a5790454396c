"""A webhook: one JSON POST to an address that the settings hold."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from email.message import Message
from typing import IO, Any

from function_app.adapters.notification_events import event_id, event_members
from function_app.errors import NotificationError
from function_app.ledger import NotificationRecord

TIMEOUT_S = 15
MAX_ANSWER_BYTES = 4096


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A notification goes where the setting says, and nowhere else."""

    def redirect_request(  # noqa: PLR0917 (urllib's own signature)
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        """Follow nothing: the answer then is an error with the redirect's status."""


class WebhookNotifier:
    """Implements Notifier. The address is a secret: it is in no message."""

    def __init__(self, url: str) -> None:
        """Take an address that `settings.read_url` has checked."""
        self._url = url
        handlers: tuple[Any, ...] = (_NoRedirect(),)
        if url.startswith("http://"):  # this machine: no proxy knows it
            handlers = (*handlers, urllib.request.ProxyHandler({}))
        self._opener = urllib.request.build_opener(*handlers)

    def send(self, notification: NotificationRecord) -> None:
        """See Notifier. A receiver that gets the same ``id`` twice has been told once."""
        body = json.dumps(event_members(notification)).encode()
        headers = {"Content-Type": "application/json", "Idempotency-Key": event_id(notification)}
        request = urllib.request.Request(self._url, data=body, headers=headers, method="POST")  # noqa: S310 (checked)
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as answer:
                answer.read(MAX_ANSWER_BYTES)
        except urllib.error.HTTPError as error:
            with error:
                seen = error.read(MAX_ANSWER_BYTES).decode(errors="replace")[:200]
            raise NotificationError(f"{notification.recipient} answered {error.code}: {seen!r}") from error
        except (OSError, ValueError) as error:
            raise NotificationError(f"{notification.recipient} did not answer: {type(error).__name__}") from error
