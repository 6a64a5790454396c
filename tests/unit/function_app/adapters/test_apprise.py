"""Apprise against services on this machine: what people get, what a failure says, and where nothing is sent."""

from __future__ import annotations

import json
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from function_app.adapters.apprise import MAX_BODY_CHARS, AppriseNotifier
from function_app.config.settings import read_apprise_url
from function_app.domain.errors import NotificationError, SettingsError
from function_app.domain.outcomes import Links
from function_app.domain.records import NotificationRecord

NOTIFICATION = NotificationRecord(
    key="landfall-digits-v1-a1/failed/apprise:LANDFALL_TEAM",
    subject="landfall-digits-v1-a1",
    outcome="failed",
    recipient="apprise:LANDFALL_TEAM",
    content={"text": "digits/v1 could not be trained: out of memory.", "dataset": "digits", "version": "v1"},
    created_at=datetime(2026, 11, 20, tzinfo=UTC),
)
SECRET = "s3cr3tT0ken"  # noqa: S105 (of a service on this machine)


@dataclass
class Service:
    """Takes posts and answers with a status."""

    port: int
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    received: list[Any] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The Apprise URL, which has a secret."""
        return f"json://user:{SECRET}@127.0.0.1:{self.port}/hook/{SECRET}"


@pytest.fixture
def service() -> Iterator[Service]:
    """A service on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            found.received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(found.status)
            for name, value in {**found.headers, "Content-Length": "0"}.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Stay quiet."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        found = Service(port=server.server_port)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield found
        server.shutdown()
        thread.join()


def test_people_get_what_happened_so_what_what_now_and_links(service: Service) -> None:
    """They are in one message."""
    AppriseNotifier(service.url, Links(pages="https://landfall.example")).send(NOTIFICATION)
    (message,) = service.received
    assert "digits/v1: failed" == message["title"]
    assert [
        "digits/v1 could not be trained: out of memory.",
        "What it means: No model comes of this run; the one that is registered stays the current one.",
        "What to do: To see what happened: landfall why landfall-digits-v1-a1",
        "Page: https://landfall.example/runs/landfall-digits-v1-a1",
    ] == message["message"].splitlines()


@pytest.mark.parametrize("status", [302, 307, 401, 404, 500])
def test_a_refusal_says_why_without_the_secret(service: Service, status: int) -> None:
    """A redirect is one too: a notification goes where the setting says, whatever the URL asks for."""
    service.status, service.headers = status, {"Location": f"http://127.0.0.1:{service.port}/elsewhere"}
    with pytest.raises(NotificationError, match=rf"apprise:LANDFALL_TEAM refused: .*{status}") as caught:
        AppriseNotifier(f"{service.url}?redirect=yes").send(NOTIFICATION)
    assert SECRET not in str(caught.value)
    assert 1 == len(service.received)


def test_a_service_that_does_not_answer_is_an_error() -> None:
    """The notification stays in the outbox."""
    with pytest.raises(NotificationError, match="apprise:LANDFALL_TEAM refused") as caught:
        AppriseNotifier(f"json://user:{SECRET}@127.0.0.1:9/{SECRET}").send(NOTIFICATION)
    assert SECRET not in str(caught.value)


def test_a_long_text_is_one_message_of_bounded_size(service: Service) -> None:
    """A log tail would flood a chat."""
    AppriseNotifier(service.url).send(replace(NOTIFICATION, content={"text": "x" * 100_000}))
    (message,) = service.received
    assert len(message["message"]) <= MAX_BODY_CHARS


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        (
            "json://example.com/hook",
            "must be an Apprise URL that leaves the machine encrypted: it begins with jsons://",
        ),
        ("mailto://user:pass@example.com", "it begins with mailtos://"),
        ("syslog://", "must be an Apprise URL that leaves the machine"),
        ("nosuch://x", "is not an Apprise URL"),
    ],
)
def test_what_is_not_encrypted_or_unknown_is_refused(url: str, problem: str) -> None:
    """It is refused before anything is sent."""
    with pytest.raises(NotificationError, match=problem):
        AppriseNotifier(url).send(NOTIFICATION)


class _Mail(socketserver.StreamRequestHandler):
    """A minimal SMTP server for one client."""

    def handle(self) -> None:
        """Take one message."""
        self.wfile.write(b"220 here\r\n")
        mails: list[str] = self.server.mails  # type: ignore[attr-defined]
        is_body, text = False, ""
        for raw in self.rfile:
            line = raw.decode()
            if is_body and line == ".\r\n":
                mails.append(text)
                is_body = False
                self.wfile.write(b"250 taken\r\n")
            elif is_body:
                text += line
            elif line.upper().startswith("DATA"):
                is_body = True
                self.wfile.write(b"354 go on\r\n")
            elif line.upper().startswith("QUIT"):
                self.wfile.write(b"221 bye\r\n")
                return
            else:
                self.wfile.write(b"250 fine\r\n")


def test_an_e_mail_arrives() -> None:
    """Over SMTP, with the title as its subject."""
    with socketserver.TCPServer(("127.0.0.1", 0), _Mail) as server:
        mails: list[str] = []
        server.mails = mails  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        port = server.server_address[1]
        AppriseNotifier(f"mailto://127.0.0.1:{port}/?from=a@example.com&to=b@example.com&format=text").send(
            NOTIFICATION
        )
        server.shutdown()
        thread.join()
    (mail,) = mails
    assert ("To: b@example.com" in mail, "digits/v1" in mail) == (True, True)


@pytest.mark.parametrize("value", ["", "no url", "mailto://a b", "//x"])
def test_a_setting_that_is_no_url_is_refused_without_showing_it(value: str) -> None:
    """When the app starts, so that the pipeline is out of service with the reason."""
    with pytest.raises(SettingsError, match="LANDFALL_TEAM") as caught:
        read_apprise_url({"LANDFALL_TEAM": value}, "LANDFALL_TEAM")
    assert not value or value not in str(caught.value)


def test_a_cold_start_does_not_import_apprise() -> None:
    """It takes half a second; the first notification that needs it imports it."""
    code = (
        "import sys, function_app.adapters.apprise as one; one.AppriseNotifier('json://x');"
        "import function_app.bootstrap; print('apprise' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "False" == done.stdout.strip()
