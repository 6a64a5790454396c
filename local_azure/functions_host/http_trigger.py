"""HTTP in and out of a function: aiohttp's request to the worker's message, and back."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

from aiohttp import web

from local_azure.functions_host.invocations import Invoker, Outcome
from local_azure.functions_host.routes import Match
from local_azure.functions_host.worker_messages import SAME_SITE_NAMES, RpcHttp, TypedData

MAX_BODY_BYTES = 100 << 20
"""The Functions host's default: https://learn.microsoft.com/azure/azure-functions/functions-bindings-http-webhook."""

COMPUTED_HEADERS = ("content-length", "transfer-encoding")
"""aiohttp makes them from the body."""


async def answer(request: web.Request, match: Match, invoker: Invoker) -> web.Response:
    """Call the matched function with ``request``; 500 without a body where it fails, as the Functions host does."""
    message = await _request_message(request, match)
    return _response(await invoker.invoke(match.function, TypedData(http=message)))


async def _request_message(request: web.Request, match: Match) -> RpcHttp:
    return RpcHttp(
        method=request.method,
        url=f"{request.scheme}://{request.host}{request.raw_path}",
        headers=_joined(request.headers.items(), lower=True),
        params=match.parameters,
        query=_joined(request.query.items(), lower=False),
        body=TypedData(bytes=await request.read()),
    )


def _joined(pairs: Any, *, lower: bool) -> dict[str, str]:
    """One value per name: the host joins repeated ones with a comma."""
    joined: dict[str, str] = {}
    for name, value in pairs:
        key = name.lower() if lower else name
        joined[key] = f"{joined[key]},{value}" if key in joined else value
    return joined


def _response(outcome: Outcome) -> web.Response:
    if not outcome.succeeded:
        return web.Response(status=500)
    value = outcome.return_value
    if value is None:
        return web.Response(status=204)
    if value.WhichOneof("data") == "http":
        return _http_response(value.http)
    body = _body(value)
    is_json = value.WhichOneof("data") == "json"
    return web.Response(body=body, content_type="application/json" if is_json else "text/plain", charset="utf-8")


def _http_response(message: Any) -> web.Response:
    headers = {name: value for name, value in (message.headers or {}).items() if name.lower() not in COMPUTED_HEADERS}
    response = web.Response(status=int(message.status_code), headers=headers, body=_body(message.body))
    for cookie in message.cookies or ():
        response.headers.add("Set-Cookie", _cookie(cookie))
    return response


def _body(value: Any) -> bytes:
    if value is None:
        return b""
    content = getattr(value, value.WhichOneof("data") or "bytes")
    if isinstance(content, bytes):
        return content
    return content.encode() if isinstance(content, str) else json.dumps(content).encode()


def _cookie(cookie: Any) -> str:
    """A Set-Cookie value from the worker's cookie message, whose optional fields are wrapped."""
    parts = [f"{cookie.name}={cookie.value}"]
    if cookie.expires:
        moment = datetime.fromtimestamp(cookie.expires.value.seconds, tz=UTC)
        parts.append(f"Expires={format_datetime(moment, usegmt=True)}")
    if cookie.max_age:
        parts.append(f"Max-Age={cookie.max_age.value:.0f}")
    parts += [
        f"{label}={field.value}" for label, field in (("Domain", cookie.domain), ("Path", cookie.path)) if _set(field)
    ]
    parts += [label for label, field in (("Secure", cookie.secure), ("HttpOnly", cookie.http_only)) if _set(field)]
    if cookie.same_site in SAME_SITE_NAMES:
        parts.append(f"SameSite={SAME_SITE_NAMES[cookie.same_site]}")
    return "; ".join(parts)


def _set(field: Any) -> bool:
    return field is not None and bool(field.value)
