"""A proxy between an app and its storage account that refuses requests and loses answers.

A shared key signs the path and not the host, so requests pass unchanged. Each of the account's three services has a
port of its own; the fault of a request is drawn before it is passed on.
"""

from __future__ import annotations

import http.client
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

UPSTREAM_TIMEOUT_S = 60.0
MAX_BODY_BYTES = 64 << 20
_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})


class StorageFault(StrEnum):
    """A fault of one request; the value describes it."""

    THROTTLED = "429, and no effect"
    BUSY = "503, and no effect"
    DROPPED = "the connection ends before the request reaches storage"
    LOST = "an effect, and the connection ends before its answer"
    TIMED_OUT = "an effect, and 500 OperationTimedOut"


Draw = Callable[[str, str, str], StorageFault | None]
"""Takes a request's service (``blob``, ``queue``, ``table``), verb and path; None lets the request pass."""


def no_faults(_service: str, _verb: str, _path: str) -> None:
    """Draw no fault."""


Headers = list[tuple[str, str]]
Answer = tuple[int, bytes, Headers]
REFUSALS: Mapping[StorageFault | None, tuple[int, str]] = {
    StorageFault.THROTTLED: (429, "TooManyRequests"),
    StorageFault.BUSY: (503, "ServerBusy"),
}


class StorageProxy:
    """Decides the fate of every request to one Azurite; ``draw`` may be replaced at any time."""

    def __init__(self) -> None:
        self.draw: Draw = no_faults
        self.done: Counter[StorageFault] = Counter()
        """Number of faults so far, by kind."""
        self.lock = threading.Lock()

    def decide(self, service: str, verb: str, path: str) -> StorageFault | None:
        """Draw for one request; concurrent requests are drawn one after the other."""
        with self.lock:
            fault = self.draw(service, verb, path)
            if fault is not None:
                self.done[fault] += 1
            return fault


@contextmanager
def storage_proxy(ports: Mapping[str, int]) -> Iterator[tuple[StorageProxy, dict[str, int]]]:
    """Start a proxy for each port of ``ports`` (service → port); yield the proxy and its own ports."""
    proxy, servers = StorageProxy(), dict[str, ThreadingHTTPServer]()
    try:
        for name, port in ports.items():
            servers[name] = _Server(proxy, name, port)
            threading.Thread(target=servers[name].serve_forever, daemon=True).start()
        yield proxy, {name: server.server_address[1] for name, server in servers.items()}
    finally:
        for server in servers.values():
            server.shutdown()
            server.server_close()


def through(connection: str, ports: Mapping[str, int]) -> str:
    """Return the connection string with the endpoints moved to other ports of this machine."""
    members = dict(part.partition("=")[::2] for part in connection.rstrip(";").split(";"))
    for name, port in ports.items():
        key = f"{name.capitalize()}Endpoint"
        if key in members:
            members[key] = f"http://127.0.0.1:{port}{urlsplit(members[key]).path}"
    return "".join(f"{key}={value};" for key, value in members.items())


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, proxy: StorageProxy, service: str, upstream_port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.proxy = proxy
        self.service = service
        self.upstream_port = upstream_port

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect: that is part of the storm."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Headers and body are two writes: with Nagle's algorithm the second one waits 40 ms for an acknowledgement.
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, *_: object) -> None:
        """Log nothing: faults are counted."""

    def pass_on(self) -> None:
        """Apply the drawn fault, or pass the request on."""
        body = self.rfile.read(_length(self.headers.get("Content-Length")))
        service = self.server.service
        fault = self.server.proxy.decide(service, self.command, self.path)
        if fault in REFUSALS:
            self.answer(*error_answer(service, *REFUSALS[fault]))
        elif fault is not StorageFault.DROPPED:
            answer = _forward(self.server.upstream_port, self.command, self.path, dict(self.headers), body)
            if fault is StorageFault.TIMED_OUT:
                answer = error_answer(service, 500, "OperationTimedOut")
            if fault is not StorageFault.LOST:
                self.answer(*answer)
        if fault in (StorageFault.DROPPED, StorageFault.LOST):
            self.close_connection = True

    def answer(self, status: int, content: bytes, headers: Headers) -> None:
        """Send an answer; the answer of HEAD has a length but no body."""
        content = b"" if self.command == "HEAD" else content
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        if not (self.command == "HEAD" and any(name.lower() == "content-length" for name, _ in headers)):
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_PATCH = do_MERGE = pass_on  # noqa: N815 (http.server)


def error_answer(service: str, status: int, code: str) -> Answer:
    """Return an error in the service's own format; the client may retry at once."""
    text = f"{code}: a storm over storage"
    body = f'<?xml version="1.0" encoding="utf-8"?><Error><Code>{code}</Code><Message>{text}</Message></Error>'
    kind = "application/xml"
    if service == "table":
        body = json.dumps({"odata.error": {"code": code, "message": {"lang": "en-US", "value": text}}})
        kind = "application/json;odata=minimalmetadata"
    return status, body.encode(), [("Content-Type", kind), ("x-ms-error-code", code), ("Retry-After", "0")]


def _length(header: str | None) -> int:
    length = int(header or 0)
    if not 0 <= length <= MAX_BODY_BYTES:
        raise ValueError(f"request body: {length} bytes exceed the limit of {MAX_BODY_BYTES}")
    return length


def _forward(port: int, verb: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
    """Send the request to storage and return its answer; Content-Length is kept for HEAD only."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=UPSTREAM_TIMEOUT_S)
    try:
        connection.request(verb, path, body=body, headers=dict(headers))
        answer = connection.getresponse()
        kept = [(k, v) for k, v in answer.getheaders() if k.lower() not in _HOP_BY_HOP]
        length = answer.getheader("Content-Length")
        if verb == "HEAD" and length is not None:
            kept.append(("Content-Length", length))
        return answer.status, answer.read(), kept
    finally:
        connection.close()
