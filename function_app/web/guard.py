"""What stands around the web app: bodies are bounded, and no error goes further up than here."""

from __future__ import annotations

import logging

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from function_app.web.errors import error_answer

logger = logging.getLogger(__name__)

MAX_BODY_BYTES = 64 << 10


class Guard:
    """ASGI middleware, outermost."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = await _bounded_body(receive)
        if body is None:
            refusal = error_answer(413, "body_too_large", f"a request should be at most {MAX_BODY_BYTES} bytes")
            await refusal(scope, receive, send)
            return
        try:
            await self._app(scope, _replay(body, receive), send)
        except Exception:  # noqa: BLE001 (Starlette answers in our shape, and then raises again what it has answered)
            logger.debug("an error was answered already", extra={"action": "error_answered"})


async def _bounded_body(receive: Receive) -> bytes | None:
    """Return the whole body, None where it is larger than any request of this API needs."""
    body: bytes = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            return None
        if not message.get("more_body", False):
            return body


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a channel that gives the body once, and afterwards what else comes."""
    waiting = [body]

    async def replayed() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return replayed
