"""What stands around the web app: bodies are bounded, and no error leaves without the API's shape."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from function_app.web.errors import error_answer, internal_error

MAX_BODY_BYTES = 64 << 10


class BodyTooLargeError(Exception):
    """A caller sends more than any request of this API needs."""


class Guard:
    """ASGI middleware, outermost."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, num_bytes = False, 0

        async def bounded_receive() -> Message:
            nonlocal num_bytes
            message = await receive()
            num_bytes += len(message.get("body", b""))
            if num_bytes > MAX_BODY_BYTES:
                raise BodyTooLargeError
            return message

        async def watched_send(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, bounded_receive, watched_send)
        except BodyTooLargeError:
            answer = error_answer(413, "body_too_large", f"a request should be at most {MAX_BODY_BYTES} bytes")
            await answer(scope, receive, send)
        except Exception as error:
            if started:
                raise
            await internal_error(error)(scope, receive, send)
