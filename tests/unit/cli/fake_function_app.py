"""Function apps behind an httpx transport or an address: they answer every request alike, or as a world does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

from cli.remote.api_client import ApiClient
from tests.support.world import World
from tests.unit.function_app.web.client import call


class FunctionApp:
    """Answers a client without a socket, and keeps the requests."""

    def __init__(self, status: int = 200, body: Any = None, text: str | None = None) -> None:
        self.requests: list[httpx.Request] = []
        self._status = status
        self._text = json.dumps(body) if text is None else text

    def client(self, key: str | None = "secret") -> ApiClient:
        """Return a client of it."""
        return ApiClient("https://app.example", key, transport=httpx.MockTransport(self._answer))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return httpx.Response(self._status, text=self._text)


@contextmanager
def serving(world: World) -> Iterator[str]:
    """Serve a world's API at a URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
            answer = call(world, self.command, self.path, content=body, headers=headers)
            self.send_response(answer.status_code)
            self.send_header("Content-Type", answer.headers.get("Content-Type", "text/plain"))
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        do_GET = do_POST  # noqa: N815 - the library calls it so

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    with _running(Handler) as url:
        yield url


@contextmanager
def _running(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def served(
    answer: dict[str, Any] | Iterator[dict[str, Any]],
    seen: list[tuple[str, Any]] | None = None,
    status: int = 202,
) -> Iterator[str]:
    """Serve one answer, or one after the other, at a URL; append (path, body) of each request to `seen`."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if seen is not None:
                seen.append((self.path, json.loads(body) if body else None))
            content = json.dumps(answer if isinstance(answer, dict) else next(answer)).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST  # noqa: N815 - the library calls it so

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    with _running(Handler) as url:
        yield url
