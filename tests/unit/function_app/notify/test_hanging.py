"""A recipient that hangs: the others get theirs meanwhile, and its own time is bounded, whatever it sends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from function_app.adapters import notifiers
from function_app.adapters.notifiers import BoundedNotifier, WebhookNotifier
from function_app.domain.errors import NotificationError
from function_app.domain.records import NotificationRecord, NotificationState
from function_app.notify.outbox import in_threads
from function_app.sweep.sweep import sweep
from function_app.testing.azure_ml import MemoryNotifier
from local_azure.processes import wait_until
from tests.support.world import WEBHOOK, World

DEADLINE_S = 120.0


@dataclass
class Hanging:
    """A server that keeps its callers waiting, with a byte now and then, until it is let go."""

    let_go: threading.Event = field(default_factory=threading.Event)
    url: str = ""
    asked: int = 0


@contextmanager
def hanging() -> Iterator[Hanging]:
    """Serve it."""
    server = Hanging()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            server.asked += 1
            self.rfile.read(int(self.headers["Content-Length"]))
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            while not server.let_go.wait(0.02):
                self.wfile.write(b".")  # each byte renews the timeout of a socket
            self.wfile.write(b"\r\nContent-Length: 0\r\n\r\n")

        def log_message(self, *_: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    server.url = f"http://127.0.0.1:{http.server_port}/"
    try:
        yield server
    finally:
        server.let_go.set()
        http.shutdown()
        http.server_close()
        thread.join(DEADLINE_S)


@dataclass
class LettingGo(MemoryNotifier):
    """A recipient whose notification lets a hanging one go."""

    hangs: Hanging = field(default_factory=Hanging)

    def send(self, notification: NotificationRecord) -> None:
        """Take it, once the hanging one was asked."""
        wait_until(lambda: self.hangs.asked, what="the hanging recipient is asked", timeout_s=DEADLINE_S)
        super().send(notification)
        self.hangs.let_go.set()


@pytest.mark.parametrize("by_sweep", [False, True])
def test_others_are_notified_while_a_recipient_hangs(monkeypatch: pytest.MonkeyPatch, *, by_sweep: bool) -> None:
    """The hanging one answers only once the other was notified: one after the other, it never would."""
    monkeypatch.setattr(notifiers, "TIMEOUT_S", DEADLINE_S)
    with hanging() as server:
        world, other = World(), LettingGo(hangs=server)
        slow = BoundedNotifier(WebhookNotifier(server.url), limit_s=DEADLINE_S)
        run = world.upload_version()
        world.services = replace(world.services, notifiers={"topic": slow, WEBHOOK: other}, at_once=in_threads)
        world.end_job(run)
        if by_sweep:
            sweep(world.services)
        else:
            world.follow(run)
        rows = world.ledger.notifications(run.run_id)
    assert [(NotificationState.SENT, 1)] * 2 == [(row.state, row.tries) for row in rows]
    assert (1, 1) == (len(other.received), server.asked)


def record(key: str) -> NotificationRecord:
    """A notification."""
    now = World().clock()
    return NotificationRecord(key=key, subject="s", outcome="test", recipient=WEBHOOK, content={}, created_at=now)


def test_a_recipient_that_sends_a_byte_now_and_then_is_given_up_after_its_limit() -> None:
    """Until its thread ends, nothing more is sent to it; what was accepted late is not sent again."""
    with hanging() as server:
        bounded = BoundedNotifier(WebhookNotifier(server.url), limit_s=0.2)
        with pytest.raises(NotificationError, match=r"did not answer within 0\.2 s"):
            bounded.send(record("a"))
        wait_until(lambda: server.asked, what="the recipient is asked", timeout_s=DEADLINE_S)
        with pytest.raises(NotificationError, match="has not answered an earlier notification yet"):
            bounded.send(record("b"))
        server.let_go.set()
        wait_until(lambda: _is_sent(bounded), what="the late answer has arrived", timeout_s=DEADLINE_S)
        assert 1 == server.asked


def _is_sent(bounded: BoundedNotifier) -> bool:
    """Whether the first notification counts as sent, which nothing else than its late answer can cause."""
    try:
        bounded.send(record("a"))
    except NotificationError:
        return False
    return True


def test_what_a_recipient_refuses_is_said_as_before() -> None:
    """The limit changes no error."""
    bounded = BoundedNotifier(WebhookNotifier("http://127.0.0.1:9/"))
    for _ in range(2):
        with pytest.raises(NotificationError, match="did not answer: URLError"):
            bounded.send(record("a"))


def test_what_one_of_several_raises_is_raised_after_all_have_ended() -> None:
    """The results of the others are not lost on the way."""
    done: list[int] = []

    def fails() -> None:
        raise LookupError("x")

    with pytest.raises(LookupError):
        in_threads([fails, lambda: done.append(1)])
    assert [1] == done


def test_what_threads_do_is_traced_below_what_began_them() -> None:
    """Otherwise a notification's span would have no parent among the steps of its run event."""
    current: ContextVar[str] = ContextVar("current", default="none")
    current.set("run event")
    assert ["run event"] * 3 == in_threads([current.get] * 3)
