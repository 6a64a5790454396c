"""The class of the API's routes: answers to GET have an ETag, and a POST may have a key and a condition."""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Annotated, Any

from fastapi import Depends, Header, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.types import Message

from function_app.domain.errors import ChangedMeanwhileError, ServiceUnavailableError
from function_app.web.bodies import Problem
from function_app.web.protocol.idempotency import answered_once
from function_app.web.protocol.rate_limit import KEY_PARAMETER

Handler = Callable[[Request], Awaitable[Response]]
IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=128,
        pattern=r"^[A-Za-z0-9._:-]+$",
        alias="Idempotency-Key",
        description="Name of this request: repeated under the same key it is done once.",
    ),
]
MAX_TAGS_CHARS = 2000
MAX_NAMED = 10
_ACTION = re.compile(r".*\}/[a-z-]+")
"""Path of an action on a resource, whose own path ends with a parameter."""
_TAG = re.compile(r'(W/)?("[^"]*")')
_OK, _NOT_MODIFIED, _NOT_FOUND, _INVALID = 200, 304, 404, 422
_CARRIED = ("type", "asgi", "http_version", "scheme", "server", "client", "root_path", "state")
"""Members of a request's scope that the look at its resource has too."""


def _keyed(idempotency_key: IdempotencyKey = None) -> None:
    """Let the document describe the header, and refuse a malformed one."""


def _fresh(
    if_none_match: Annotated[
        str | None,
        Header(max_length=MAX_TAGS_CHARS, description="ETag of an earlier answer: 304 where this would be the same."),
    ] = None,
) -> None:
    """Let the document describe the header, and refuse a malformed one."""


def _unchanged(
    if_match: Annotated[
        str | None,
        Header(
            max_length=MAX_TAGS_CHARS,
            description="ETag of the resource, as GET showed it: 412 where it has changed since.",
        ),
    ] = None,
) -> None:
    """Let the document describe the header, and refuse a malformed one."""


class ApiRoute(APIRoute):
    """A route of the API."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        methods = set(options.get("methods") or ())
        needed: list[Callable[..., None]] = []
        responses: dict[int | str, dict[str, Any]] = dict(options.get("responses") or {})
        if "GET" in methods:
            needed.append(_fresh)
            tag = {"ETag": {"description": "Name of this content.", "schema": {"type": "string"}}}
            responses[_OK] = {**responses.get(_OK, {}), "headers": tag}
            responses[_NOT_MODIFIED] = {"description": "The content is what If-None-Match names; no body."}
        if "POST" in methods:
            needed.append(_keyed)
        if "POST" in methods and _ACTION.fullmatch(path):
            needed.append(_unchanged)
            responses[412] = {"model": Problem, "description": "The resource has changed since; nothing was done."}
        if needed:
            invalid = {"model": Problem, "description": "A parameter or a header is not valid, or a key was used."}
            responses.setdefault(_INVALID, invalid)
        own = list(options.get("dependencies") or ())
        known = {one.dependency for one in own}
        options["dependencies"] = [*own, *(Depends(each) for each in needed if each not in known)]
        super().__init__(path, endpoint, **{**options, "responses": responses})

    def get_route_handler(self) -> Callable[[Request], Any]:
        """Return what answers a request.

        A POST whose function takes ``idempotency_key`` itself binds the key to what it starts.
        """
        handle = super().get_route_handler()
        binds_key = "idempotency_key" in inspect.signature(self.endpoint).parameters
        names = {one.alias for one in self.dependant.query_params}

        async def act(request: Request) -> Response:
            await _refuse_changed(request)
            return await handle(request)

        async def answer(request: Request) -> Response:
            _refuse_unknown(request, names)
            if request.method == "GET":
                return _tagged(await handle(request), request)
            return await (act(request) if binds_key else answered_once(request, act))

        return answer


def _refuse_unknown(request: Request, names: Collection[str]) -> None:
    """Raise RequestValidationError where the query has another parameter: a mistyped filter would filter nothing."""
    unknown = [name for name in request.query_params if name not in names and name != KEY_PARAMETER]
    known = f"known are {', '.join(sorted(names))}" if names else "there are none"
    errors = [
        {"type": "extra_forbidden", "loc": ("query", name), "msg": f"There is no such parameter; {known}"}
        for name in unknown[:MAX_NAMED]
    ]
    if errors:
        raise RequestValidationError(errors)


def etag_of(body: bytes) -> str:
    """Return the strong ETag of an answer: a digest, so every change of what is shown changes it."""
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def _tagged(answer: Response, request: Request) -> Response:
    if answer.status_code != _OK:
        return answer
    tag = etag_of(bytes(answer.body))
    if _names(request.headers.getlist("if-none-match"), tag, weakly=True):
        return Response(status_code=_NOT_MODIFIED, headers={"ETag": tag})
    answer.headers["ETag"] = tag
    return answer


def _names(conditions: Sequence[str], tag: str, *, weakly: bool) -> bool:
    """Whether a condition names an ETag (RFC 9110, 13.1): ``*`` names any, and If-Match takes no weak ones."""
    if any(condition.strip() == "*" for condition in conditions):
        return True
    return any(own == tag and (weakly or not weak) for text in conditions for weak, own in _TAG.findall(text))


async def _refuse_changed(request: Request) -> None:
    """Raise ChangedMeanwhileError where If-Match names other content than a look at the resource shows now.

    A resource that does not exist is left to the action, whose answer says so.
    """
    conditions = request.headers.getlist("if-match")
    if not conditions or not _ACTION.fullmatch(getattr(request.scope.get("route"), "path", "")):
        return
    path = request.url.path.rpartition("/")[0]
    status, tag = await _looked_at(request, path)
    if status == _OK and not _names(conditions, tag, weakly=False):
        raise ChangedMeanwhileError(f"{path} has changed since you looked: look at it again, and decide again")
    if status not in (_OK, _NOT_FOUND, _INVALID):
        raise ServiceUnavailableError(f"{path} cannot be compared with If-Match now; nothing was done")


async def _looked_at(request: Request, path: str) -> tuple[int, str]:
    """Return status and ETag of a GET, which the app answers as it answers every other."""
    sent: list[Message] = []
    scope = {name: request.scope[name] for name in _CARRIED if name in request.scope}
    scope |= {"method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"", "headers": []}

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await request.app(scope, receive, send)
    headers = {name.lower(): value for name, value in sent[0]["headers"]}
    return int(sent[0]["status"]), headers.get(b"etag", b"").decode()
