"""Build the web app: routes and error handlers inside an outermost layer that bounds requests."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache

from fastapi import FastAPI
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from function_app.services import Services
from function_app.web.actions import actions
from function_app.web.api_page import api_page
from function_app.web.errors import add_error_handlers, codes, document_problems, error_answer, too_many
from function_app.web.overview import router
from function_app.web.pages import add_page_errors, pages, too_many_pages
from function_app.web.protocol.rate_limit import RateLimited, key_of, person_of

logger = logging.getLogger(__name__)

MAX_BODY_BYTES = 64 << 10


def build_web_app(services: Callable[[], Services]) -> ASGIApp:
    """Return the web app; ``services`` is called per request, so a misconfigured app still answers."""
    return Guard(RateLimited(_api(), services, caller=key_of, refusal=too_many), services)


@cache
def build_api_page() -> Response:
    """Return the page that describes the API."""
    return api_page(_api().openapi(), codes())


@cache
def _api() -> FastAPI:
    """Return the API's routes; they hold no services and are built once, by the first request."""
    app = FastAPI(title="Landfall", version="0.1.0", openapi_url="/api/openapi.json", docs_url=None, redoc_url=None)
    app.include_router(router)
    add_error_handlers(app)
    document = app.openapi
    app.openapi = cache(lambda: document_problems(document()))  # type: ignore[method-assign]  # as FastAPI's documentation says
    return app


def build_pages_app(services: Callable[[], Services]) -> ASGIApp:
    """Return the app of the pages. It has no route of the API, because the host requires no key for it."""
    return Guard(RateLimited(_pages(), services, caller=person_of, refusal=too_many_pages), services)


@cache
def _pages() -> FastAPI:
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.include_router(pages)
    app.include_router(actions)
    add_page_errors(app)
    return app


class Guard:
    """Outermost ASGI layer: refuses large bodies, attaches the services, and handles every exception."""

    def __init__(self, app: ASGIApp, services: Callable[[], Services]) -> None:
        self._app, self._services = app, services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = await _bounded_body(receive)
        if body is None:
            refusal = error_answer(413, "body_too_large", f"the body is larger than {MAX_BODY_BYTES} bytes")
            await refusal(scope, receive, send)
            return
        scope = {**scope, "state": {**scope.get("state", {}), "services": self._services}}
        try:
            await self._app(scope, _replay(body, receive), send)
        except Exception:  # noqa: BLE001 (Starlette answers with our error handler, and then raises again)
            logger.debug("an error response was already sent", extra={"action": "error_answered"})


async def _bounded_body(receive: Receive) -> bytes | None:
    """Return the whole body, or None if it is too large for this API."""
    body: bytes = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            return None
        if not message.get("more_body", False):
            return body


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a channel that delivers the body first and then the messages of ``receive``."""
    waiting = [body]

    async def replayed() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return replayed
