"""HTTP for the handlers: routes, scripted faults, tokens, errors and the call log."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import re
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from local_azure.azure_ml.api import assets, blobs, emulator, jobs, resources, sizes, tracking
from local_azure.azure_ml.api.answers import ANSWERS, Fault, named_fault
from local_azure.azure_ml.api.call import Answer, Call, not_found
from local_azure.azure_ml.api.emulator import Emulator, LoggedCall
from local_azure.azure_ml.api.throttling import Throttling
from local_azure.azure_ml.faults import AnswerFault
from local_azure.azure_ml.service import ServiceError

_BODY_LIMIT_BYTES = 5 << 20  # Blocks of blobs have 4 MiB.
_NOT_LOGGED = ("/twin/", "/msi/")  # also not affected by faults
_ARM = "/subscriptions/"
_TRACKING = "/mlflow/"
_ARTIFACT_LIMIT_BYTES = 64 << 20
_DROPPED = 0

logger = logging.getLogger(__name__)


class AzureMlApi:
    """Answers calls to one emulator at `base_url`; `application` connects the object to HTTP."""

    def __init__(self, emulator: Emulator, base_url: str) -> None:
        self._emulator = emulator
        self._base_url = base_url
        self._throttling = Throttling(emulator.bench.clock.now_s)

    def application(self) -> web.Application:
        """Return the application, which sends every path to one handler."""
        application = web.Application(client_max_size=_BODY_LIMIT_BYTES)
        application.router.add_route("*", "/{path:.*}", self._answer)
        return application

    def application_of_jobs(self) -> web.Application:
        """Return the application for jobs: only MLflow's API, without faults and the log of calls."""
        application = web.Application(client_max_size=_ARTIFACT_LIMIT_BYTES)
        application.router.add_route("*", "/{path:.*}", self._answer_job)
        return application

    async def _answer_job(self, request: web.Request) -> web.StreamResponse:
        if not request.path.startswith(_TRACKING):
            return _response(_refused(not_found("Jobs reach MLflow's part of this emulator only.")))
        return _response(await self._handle(request))

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.path.startswith(_NOT_LOGGED):
            return _response(await self._handle(request))
        started, fault = time.time(), self._fault(request)
        answer = await self._with_fault(request, fault)
        dropped = fault.drop or fault.drop_after
        self._log(request, started, _DROPPED if dropped else answer.status)
        if dropped:
            _cut(request)
        return _response(answer)

    def _fault(self, request: web.Request) -> Fault:
        """Return the fault of a call. Faults that expire tokens or take names act here, before the call."""
        emulator, path = self._emulator, request.path.rstrip("/")
        named = named_fault(emulator.bench.faults, request.method, path)
        if named is AnswerFault.EXPIRED_TOKEN:
            emulator.tokens.expire_all()
        if named is AnswerFault.NAME_TAKEN:
            jobs.take_name(emulator, path)
        return ANSWERS[named] if named else emulator.faults.next_for(request.method, request.path)

    async def _with_fault(self, request: web.Request, fault: Fault) -> Answer:
        await asyncio.sleep(fault.delay_s)
        refusal = fault.refusal()
        if refusal is not None and not fault.effect_first:
            return _refused(refusal)
        if fault.drop:
            return Answer()
        answer = await self._handle(request)
        await asyncio.sleep(fault.delay_after_s)
        if fault.truncate:
            return _cut_short(answer)
        return answer if refusal is None else _refused(refusal)

    async def _handle(self, request: web.Request) -> Answer:
        """Answer a call; errors become answers too."""
        headers: Mapping[str, str] = {}
        try:
            route, parts = find_route(request.method, request.path)
            if not route.open:
                caller = self._emulator.tokens.caller(request.headers.get("Authorization"))
                headers = self._throttling.take(caller, request.method) if request.path.startswith(_ARM) else {}
            call = await self._call(request, parts)
            answer = await asyncio.to_thread(route.handler, self._emulator, call)
        except ServiceError as error:
            answer = _refused(error)
        except Exception:
            logger.exception("%s %s broke the emulator", request.method, request.path)
            answer = _refused(ServiceError(500, "InternalError", "The emulator failed; its log says why."))
        return dataclasses.replace(answer, headers={**answer.headers, **headers})

    async def _call(self, request: web.Request, parts: Any) -> Call:
        return Call(
            method=request.method,
            path=request.path.rstrip("/"),
            query=dict(request.query),
            headers=request.headers,
            body=await _body(request),
            parts=parts,
            base_url=self._base_url,
        )

    def _caller(self, request: web.Request) -> str | None:
        with contextlib.suppress(ServiceError):  # The call itself is refused later, and logged without a caller.
            return self._emulator.tokens.caller(request.headers.get("Authorization"))
        return None

    def _log(self, request: web.Request, started: float, status: int) -> None:
        self._emulator.calls.add(
            LoggedCall(
                t=started,
                method=request.method,
                path=request.path,
                query=dict(request.query),
                status=status,
                caller=self._caller(request),
                user_agent=request.headers.get("User-Agent"),
            )
        )


async def _body(request: web.Request) -> Any:
    """Return the bytes of a blob, or the parsed JSON."""
    try:
        if request.path.startswith("/blob/") or "/mlflow-artifacts/" in request.path:
            return await request.read()
        text = await request.text()
        return json.loads(text) if text else None
    except web.HTTPRequestEntityTooLarge as error:
        limit = f"The request body is larger than {request.client_max_size} bytes."
        raise ServiceError(413, "RequestEntityTooLarge", limit) from error
    except ValueError as error:  # malformed JSON or encoding
        raise ServiceError(400, "UserError", f"The request body is not JSON: {error}.") from error


def _cut(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


def _refused(error: ServiceError) -> Answer:
    return Answer(status=error.status, body=error.body(), headers=error.headers)


def _cut_short(answer: Answer) -> Answer:
    text = json.dumps(answer.body)
    headers = {**answer.headers, "Content-Type": "application/json"}
    return Answer(status=answer.status, text=text[: len(text) // 2], headers=headers)


def _response(answer: Answer) -> web.Response:
    headers = {**answer.headers, "x-ms-request-id": str(uuid.uuid4())}
    if answer.text is not None:
        return web.Response(status=answer.status, text=answer.text, headers=headers)
    if answer.content is not None:
        return web.Response(status=answer.status, body=answer.content, headers=headers)
    if answer.body is None:
        return web.Response(status=answer.status, headers=headers)
    return web.json_response(answer.body, status=answer.status, headers=headers)


Handler = Callable[[Emulator, Call], Answer]

_WORKSPACE = (
    r"(?P<workspace_id>/subscriptions/[^/]+/resourceGroups/[^/]+"
    r"/providers/Microsoft\.MachineLearningServices/workspaces/(?P<workspace>[^/]+))"
)
_LOCATION = r"/subscriptions/[^/]+/providers/Microsoft\.MachineLearningServices/locations/[^/]+"
_BLOB = r"/blob/(?P<account>[^/]+)/(?P<container>[^/]+)(?:/(?P<path>.+))?"
_MLFLOW = r"/mlflow/v2\.0" + _WORKSPACE + r"/api/2\.0/mlflow"
_ARTIFACT = r"-artifacts/artifacts/(?P<run>[^/]+)/(?P<path>.+)"
_ASSET = _WORKSPACE + r"/(?P<kind>codes|data|environments|models)"


@dataclass(frozen=True, kw_only=True)
class HandlerRoute:
    """A method and a path pattern. `open` routes need no token, or check it themselves. ARM paths ignore case."""

    method: str
    pattern: re.Pattern[str]
    handler: Handler
    open: bool = False


def _route(method: str, pattern: str, handler: Handler, *, open_to_all: bool = False) -> HandlerRoute:
    return HandlerRoute(method=method, pattern=re.compile(pattern, re.IGNORECASE), handler=handler, open=open_to_all)


ROUTES = [
    _route("GET", r"/msi/token", resources.get_token, open_to_all=True),
    _route("GET", r"/discovery", resources.get_discovery, open_to_all=True),
    _route("GET", _WORKSPACE, resources.get_workspace),
    _route("PUT", _WORKSPACE + r"/computes/(?P<name>[^/]+)", resources.put_compute),
    _route("GET", _WORKSPACE + r"/computes/(?P<name>[^/]+)", resources.get_compute),
    _route("GET", _WORKSPACE + r"/computes", resources.list_computes),
    _route("GET", _LOCATION + r"/computeOperationsStatus/(?P<operation>[^/]+)", resources.get_operation),
    _route("GET", _LOCATION + r"/vmSizes", sizes.list_sizes),
    _route("GET", _LOCATION + r"/usages", sizes.list_usages),
    _route("PUT", _WORKSPACE + r"/datastores/(?P<name>[^/]+)", resources.put_datastore),
    _route("GET", _WORKSPACE + r"/datastores/(?P<name>[^/]+)", resources.get_datastore),
    _route("GET", _WORKSPACE + r"/datastores", resources.list_datastores),
    _route("GET", _ASSET, assets.list_containers),
    _route("GET", _ASSET + r"/(?P<name>[^/]+)", assets.get_container),
    _route("GET", _ASSET + r"/(?P<name>[^/]+)/versions", assets.list_versions),
    _route("GET", _ASSET + r"/(?P<name>[^/]+)/versions/(?P<version>[^/]+)", assets.get_version),
    _route("PUT", _ASSET + r"/(?P<name>[^/]+)/versions/(?P<version>[^/]+)", assets.put_version),
    _route(
        "POST",
        _ASSET + r"/(?P<name>[^/]+)/versions/(?P<version>[^/]+)/startPendingUpload",
        assets.start_pending_upload,
    ),
    _route("PUT", _WORKSPACE + r"/jobs/(?P<name>[^/]+)", jobs.put_job),
    _route("GET", _WORKSPACE + r"/jobs/(?P<name>[^/]+)", jobs.get_job),
    _route("GET", _WORKSPACE + r"/jobs", jobs.list_jobs),
    _route("POST", _WORKSPACE + r"/jobs/(?P<name>[^/]+)/cancel", jobs.cancel_job),
    _route("GET", _LOCATION + r"/mfeOperationResults/jc:(?P<operation>[^/]+)", jobs.get_cancel_result),
    _route("GET", r"/history/v1\.0" + _WORKSPACE + r"/runs/(?P<name>[^/]+)/details", jobs.get_run_details),
    _route("GET", r"/history/v1\.0" + _WORKSPACE + r"/runs/(?P<name>[^/]+)", jobs.get_run),
    _route("GET", _MLFLOW + r"/runs/get", tracking.get_run, open_to_all=True),
    _route("POST", _MLFLOW + r"/runs/update", tracking.update_run, open_to_all=True),
    _route("POST", _MLFLOW + r"/runs/log-batch", tracking.log_batch, open_to_all=True),
    _route("POST", _MLFLOW + r"/runs/log-metric", tracking.log_metric, open_to_all=True),
    _route("POST", _MLFLOW + r"/runs/log-parameter", tracking.log_parameter, open_to_all=True),
    _route("POST", _MLFLOW + r"/runs/set-tag", tracking.set_tag, open_to_all=True),
    _route("GET", _MLFLOW + r"/experiments/get(?:-by-name)?", tracking.get_experiment, open_to_all=True),
    _route("PUT", _MLFLOW + _ARTIFACT, tracking.put_artifact, open_to_all=True),
    _route("GET", _BLOB, blobs.get_blob, open_to_all=True),
    _route("HEAD", _BLOB, blobs.get_blob, open_to_all=True),
    _route("PUT", _BLOB, blobs.put_blob, open_to_all=True),
    _route("GET", r"/twin/calls", emulator.get_calls, open_to_all=True),
    _route("GET", r"/twin/cluster", emulator.get_cluster, open_to_all=True),
    _route("GET", r"/twin/jobs/(?P<name>[^/]+)/log", emulator.get_log, open_to_all=True),
    _route("POST", r"/twin/faults", emulator.post_fault, open_to_all=True),
    _route("GET", r"/twin/faults", emulator.get_faults, open_to_all=True),
    _route("POST", r"/twin/clock", emulator.post_clock, open_to_all=True),
    _route("DELETE", r"/twin/faults", emulator.delete_faults, open_to_all=True),
]


def find_route(method: str, path: str) -> tuple[HandlerRoute, Mapping[str, str]]:
    """Return the route for a call and the named parts of its path. Raises ServiceError 404 or 405 without a route."""
    trimmed = path.rstrip("/")
    matches = [(route, match) for route in ROUTES if (match := route.pattern.fullmatch(trimmed))]
    for route, match in matches:
        if route.method == method:
            return route, match.groupdict()
    if matches:
        raise ServiceError(405, "MethodNotAllowed", f"{method} is not supported by this emulator on {path}.")
    raise ServiceError(404, "NotFound", f"This emulator has nothing at {path}.")
