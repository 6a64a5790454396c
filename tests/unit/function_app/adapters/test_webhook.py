"""A webhook on this machine: what it gets, and what becomes of answers that are none."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from function_app.adapters import notifiers
from function_app.adapters.notifiers import WebhookNotifier
from function_app.domain.errors import NotificationError
from function_app.domain.records import NotificationRecord

NOTIFICATION = NotificationRecord(
    key="landfall-digits-v1-a1/registered/webhook:LANDFALL_WEBHOOK_PEOPLE",
    subject="landfall-digits-v1-a1",
    outcome="registered",
    recipient="webhook:LANDFALL_WEBHOOK_PEOPLE",
    content={"text": "digits/v1: model digits-cnn is registered."},
    created_at=datetime(2026, 11, 20, tzinfo=UTC),
)


@dataclass
class Receiver:
    """Takes posts and answers with a status."""

    url: str
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    answer: bytes | None = None
    """Bytes to send instead of an answer; the connection is then closed, or is left open where it ``stalls``."""
    stalls: bool = False
    received: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.received.append((self.path, dict(self.headers), json.loads(body)))
            if found.answer is not None:
                self.wfile.write(found.answer)
                self.close_connection = True
                if found.stalls:
                    self.rfile.read(1)  # returns when the sender hangs up
                return
            self.send_response(found.status)
            for name, value in found.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(b"thank you")

        def log_message(self, *_: Any) -> None:
            """Stay quiet."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        found = Receiver(url=f"http://127.0.0.1:{server.server_port}/hook?key=secret")
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield found
        server.shutdown()
        thread.join()


def test_a_webhook_gets_one_event_as_plain_json(receiver: Receiver) -> None:
    """A CloudEvent whose id is made of the idempotency key."""
    for _ in range(2):
        WebhookNotifier(receiver.url).send(NOTIFICATION)
    (path, headers, event), (_, _, repeated) = receiver.received
    assert ("/hook?key=secret", "application/json") == (path, headers["Content-Type"])
    assert ("landfall.registered", "landfall-digits-v1-a1", dict(NOTIFICATION.content)) == (
        event["type"],
        event["subject"],
        {name: event["data"][name] for name in NOTIFICATION.content},
    )
    assert (event["id"], event["id"]) == (repeated["id"], headers["Idempotency-Key"])


@pytest.mark.parametrize("status", [400, 404, 429, 500, 503])
def test_an_answer_that_is_no_success_is_an_error(receiver: Receiver, status: int) -> None:
    """The error has the status and the answer, but not the URL, which is a secret."""
    receiver.status = status
    with pytest.raises(NotificationError, match=f"answered {status}: 'thank you'") as caught:
        WebhookNotifier(receiver.url).send(NOTIFICATION)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "stalls", "problem"),
    [
        (b"HTTP/1.1 500 Broken\r\nContent-Length: 90\r\n\r\n", True, "answered 500: ''"),
        (b"HTTP/1.1 500 Broken\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nth", False, "answered 500: ''"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", False, "did not answer: BadStatusLine"),
    ],
)
def test_a_broken_answer_is_an_error(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, *, answer: bytes, stalls: bool, problem: str
) -> None:
    """A body that stalls or breaks off leaves the status; without a status there is no answer."""
    monkeypatch.setattr(notifiers, "TIMEOUT_S", 0.2)
    receiver.answer, receiver.stalls = answer, stalls
    with pytest.raises(NotificationError, match=problem):
        WebhookNotifier(receiver.url).send(NOTIFICATION)


def test_a_success_whose_body_breaks_off_is_a_delivery(receiver: Receiver) -> None:
    """The receiver has taken the event; sent again, it would be there twice."""
    receiver.answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nth"
    WebhookNotifier(receiver.url).send(NOTIFICATION)
    assert 1 == len(receiver.received)


def test_a_redirect_is_not_followed(receiver: Receiver) -> None:
    """A notification goes where the setting says, and nowhere else."""
    receiver.status, receiver.headers = 307, {"Location": receiver.url}
    with pytest.raises(NotificationError, match="answered 307"):
        WebhookNotifier(receiver.url).send(NOTIFICATION)
    assert 1 == len(receiver.received)


def test_an_endpoint_without_a_listener_is_an_error() -> None:
    """The notification stays in the outbox."""
    with pytest.raises(NotificationError, match="webhook:LANDFALL_WEBHOOK_PEOPLE did not answer"):
        WebhookNotifier("http://127.0.0.1:9/").send(NOTIFICATION)
