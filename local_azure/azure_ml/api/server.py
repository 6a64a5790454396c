"""HTTP and TLS around the handlers: faults, tokens, errors and the call log, in that order for every call."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import ssl
import time
import uuid
from typing import Any

from aiohttp import web

from local_azure.azure_ml.api.call import Answer, Call
from local_azure.azure_ml.api.call_log import LoggedCall
from local_azure.azure_ml.api.emulator import Emulator
from local_azure.azure_ml.api.faults import Fault
from local_azure.azure_ml.api.routes import find_route
from local_azure.azure_ml.errors import ServiceError

_BODY_LIMIT_BYTES = 4 << 20
_NOT_LOGGED = ("/twin/", "/msi/")  # nor hit by faults
_DROPPED = 0

logger = logging.getLogger(__name__)


class Server:
    """Serves one emulator on localhost."""

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator
        self._base_url = ""
        application = web.Application(client_max_size=_BODY_LIMIT_BYTES)
        application.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.5)

    async def start(self, port: int, tls: ssl.SSLContext) -> str:
        """Listen, on a free port for 0; gives the base URL."""
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port, ssl_context=tls).start()
        self._base_url = f"https://localhost:{self._runner.addresses[0][1]}"
        return self._base_url

    async def stop(self) -> None:
        """Close."""
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.path.startswith(_NOT_LOGGED):
            return _response(await self._handle(request))
        fault = self._emulator.faults.next_for(request.method, request.path)
        started = time.time()
        answer = await self._with_fault(request, fault)
        dropped = fault.drop or fault.drop_after
        self._log(request, started, _DROPPED if dropped else answer.status)
        if dropped:
            _cut(request)
        return _response(answer)

    async def _with_fault(self, request: web.Request, fault: Fault) -> Answer:
        await asyncio.sleep(fault.delay_s)
        refusal = fault.refusal()
        if refusal is not None and not fault.effect_first:
            return _refused(refusal)
        if fault.drop:
            return Answer()
        answer = await self._handle(request)
        await asyncio.sleep(fault.delay_after_s)
        return answer if refusal is None else _refused(refusal)

    async def _handle(self, request: web.Request) -> Answer:
        """Answer a call, whatever happens."""
        try:
            route, parts = find_route(request.method, request.path)
            if not route.open:
                self._emulator.tokens.caller(request.headers.get("Authorization"))
            call = await self._call(request, parts)
            return await asyncio.to_thread(route.handler, self._emulator, call)
        except ServiceError as error:
            return _refused(error)
        except Exception:
            logger.exception("%s %s broke the emulator", request.method, request.path)
            return _refused(ServiceError(500, "InternalError", "The emulator failed; its log says why."))

    async def _call(self, request: web.Request, parts: Any) -> Call:
        return Call(
            method=request.method,
            path=request.path.rstrip("/"),
            query=dict(request.query),
            headers=request.headers,
            body=await _json(request),
            parts=parts,
            base_url=self._base_url,
        )

    def _caller(self, request: web.Request) -> str | None:
        with contextlib.suppress(ServiceError):  # the call itself is refused later, and logged without a caller
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


async def _json(request: web.Request) -> Any:
    try:
        text = await request.text()
        return json.loads(text) if text else None
    except web.HTTPRequestEntityTooLarge as error:
        limit = f"The request body is larger than {_BODY_LIMIT_BYTES} bytes."
        raise ServiceError(413, "RequestEntityTooLarge", limit) from error
    except ValueError as error:  # of the JSON, or of the text's encoding
        raise ServiceError(400, "UserError", f"The request body is no JSON: {error}.") from error


def _cut(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


def _refused(error: ServiceError) -> Answer:
    return Answer(status=error.status, body=error.body(), headers=error.headers)


def _response(answer: Answer) -> web.Response:
    headers = {**answer.headers, "x-ms-request-id": str(uuid.uuid4())}
    if answer.text is not None:
        return web.Response(status=answer.status, text=answer.text, headers=headers)
    if answer.body is None:
        return web.Response(status=answer.status, headers=headers)
    return web.json_response(answer.body, status=answer.status, headers=headers)
