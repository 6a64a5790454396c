"""HTTP triggers: the function for a path, and its request and response as messages of the worker.

Precedence of routes is ASP.NET's, as in the Functions host. Segments are compared one by one, in the order literal,
constrained parameter, parameter, catch-all. A function matches only the methods that it lists.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any
from urllib.parse import unquote

from aiohttp import web

from local_azure.functions_host.functions import Function
from local_azure.functions_host.invocations import Invoker, Outcome
from local_azure.functions_host.settings import BindingError
from local_azure.functions_host.worker import SAME_SITE_NAMES, RpcHttp, TypedData

MAX_BODY_BYTES = 100 << 20
"""The Functions host's default: https://learn.microsoft.com/azure/azure-functions/functions-bindings-http-webhook."""

COMPUTED_HEADERS = ("content-length", "transfer-encoding")
"""Headers that aiohttp computes from the body."""

_PARAMETER = re.compile(
    r"\{(?P<stars>\*{0,2})(?P<name>\w+)(?P<constraint>(?::[^{}?=]+)*)(?:=(?P<default>[^{}?]*))?(?P<optional>\??)\}"
)
_CONSTRAINTS = {
    "int": r"[+-]?\d+",
    "long": r"[+-]?\d+",
    "guid": r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    "bool": r"(?i:true|false)",
    "alpha": r"[A-Za-z]+",
}
"""The supported constraints. Others are rejected, not ignored."""


async def answer(request: web.Request, match: Match, invoker: Invoker) -> web.Response:
    """Call the matched function; if it fails, answer 500 without a body, like the Functions host."""
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
    """Return one value per name; repeated values are joined with a comma, as in the Functions host."""
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
    """Return a Set-Cookie value from the worker's cookie message, whose optional fields are wrapped."""
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


LITERAL, CONSTRAINED, PARAMETER, CATCH_ALL = range(4)


@dataclass(frozen=True, kw_only=True)
class Route:
    """One HTTP function's template, ready to be matched."""

    function: Function
    pattern: re.Pattern[str]
    methods: frozenset[str]
    """Methods; empty for all."""
    precedence: tuple[int, ...]
    """Sort key; smaller keys are tried first."""
    template: str
    """The template with the route prefix."""


@dataclass(frozen=True, kw_only=True)
class Match:
    """The function that answers a path, and its route parameters."""

    function: Function
    parameters: dict[str, str]


def make_routes(functions: Iterable[Function], route_prefix: str) -> list[Route]:
    """Return the routes of all HTTP functions, in the order in which they are tried."""
    routes = [make_route(function, route_prefix) for function in functions if function.trigger_is("httpTrigger")]
    return sorted(routes, key=lambda route: route.precedence)


def make_route(function: Function, route_prefix: str) -> Route:
    """Return the route of one HTTP function. Raises BindingError for an unsupported template."""
    trigger = function.trigger
    template = "/".join(
        part for part in (route_prefix, str(trigger.get("route") or function.name).strip("/")) if part
    )
    segments = [_segment(segment, function.name) for segment in template.split("/")]
    return Route(
        function=function,
        pattern=re.compile("".join(pattern for pattern, _ in segments) + "/?", re.IGNORECASE),
        methods=frozenset(str(method).upper() for method in trigger.get("methods") or ()),
        precedence=tuple(rank for _, rank in segments),
        template=template,
    )


def find_route(routes: Iterable[Route], method: str, path: str) -> Match | None:
    """Return the first match for `method` and the encoded `path`."""
    for route in routes:
        if route.methods and method.upper() not in route.methods:
            continue
        if match := route.pattern.fullmatch("/" + path.strip("/")):
            return Match(function=route.function, parameters=_parameters(match))
    return None


def _parameters(match: re.Match[str]) -> dict[str, str]:
    return {name: unquote(value) for name, value in match.groupdict().items() if value}


def _segment(segment: str, function_name: str) -> tuple[str, int]:
    """Return the segment's pattern, including the slash before it, and its precedence."""
    whole = _PARAMETER.fullmatch(segment)
    if whole and whole["stars"]:
        return rf"(?:/(?P<{whole['name']}>.*))?", CATCH_ALL
    if whole and whole["optional"]:
        return rf"(?:/(?P<{whole['name']}>{_constraint(whole, function_name)}))?", _rank(whole)
    pattern, end = "/", 0
    parameters = list(_PARAMETER.finditer(segment))
    for parameter in parameters:
        pattern += re.escape(segment[end : parameter.start()])
        pattern += rf"(?P<{parameter['name']}>{_constraint(parameter, function_name)})"
        end = parameter.end()
    rest = segment[end:]
    if "{" in rest or "}" in rest:
        raise BindingError(
            f"function {function_name} has a route with the segment {segment!r}, which is not understood"
        )
    rank = max((_rank(parameter) for parameter in parameters), default=LITERAL)
    return pattern + re.escape(rest), rank


def _rank(parameter: re.Match[str]) -> int:
    return CONSTRAINED if parameter["constraint"] else PARAMETER


def _constraint(parameter: re.Match[str], function_name: str) -> str:
    names = [name for name in parameter["constraint"].split(":") if name]
    unknown = [name for name in names if name not in _CONSTRAINTS]
    if unknown or len(names) > 1:
        raise BindingError(
            f"function {function_name} has the route parameter {parameter[0]}; the dev host understands one of the "
            f"constraints {', '.join(_CONSTRAINTS)}"
        )
    return _CONSTRAINTS[names[0]] if names else "[^/]+"
