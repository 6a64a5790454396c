"""The host's own endpoints: its status, its functions, and starting one of them by hand."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from aiohttp import web

from local_azure.functions_host.functions import Function
from local_azure.functions_host.invocations import Invoker
from local_azure.functions_host.routes import Route
from local_azure.functions_host.timer_trigger import TimerListener
from local_azure.functions_host.worker_messages import TypedData


@dataclass(kw_only=True)
class Admin:
    """Answers below ``/admin``."""

    functions: Mapping[str, Function]
    """By name in lower case."""
    routes: list[Route]
    timers: Mapping[str, TimerListener]
    """By function name."""
    invoker: Invoker
    started: float = field(default_factory=time.monotonic)
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    async def status(self, _request: web.Request) -> web.Response:
        """GET /admin/host/status."""
        return web.json_response(
            {
                "id": "dev-host",
                "state": "Running",
                "version": f"azure-functions-runtime {version('azure-functions-runtime')}",
                "processUptime": round((time.monotonic() - self.started) * 1000),
                "functionCount": len(self.functions),
                "runningInvocations": len(self.invoker.running),
            }
        )

    async def list_functions(self, request: web.Request) -> web.Response:
        """GET /admin/functions."""
        urls = {route.function.name: f"http://{request.host}/{route.template}" for route in self.routes}
        return web.json_response(
            [
                {
                    "name": function.name,
                    "bindings": list(function.bindings),
                    "isDisabled": function.disabled,
                    "invoke_url_template": urls.get(function.name),
                }
                for function in self.functions.values()
            ]
        )

    async def start_function(self, request: web.Request) -> web.Response:
        """POST /admin/functions/{name} with ``{"input": …}``: 202, and the function runs."""
        function = self.functions.get(request.match_info["name"].lower())
        if function is None:
            return _refusal(404, f"there is no function called {request.match_info['name']!r}")
        if str(function.trigger["type"]).lower() == "httptrigger":
            return _refusal(400, f"{function.name} is an HTTP function: call its route")
        try:
            given = _input(await request.read())
        except ValueError as error:
            return _refusal(400, str(error))
        self._start(function, given)
        return web.Response(status=202)

    def _start(self, function: Function, given: Any) -> None:
        timer = self.timers.get(function.name)
        if timer:
            task: asyncio.Task[Any] = asyncio.create_task(timer.fire(past_due=False))
        else:
            task = asyncio.create_task(self.invoker.invoke(function, _data(function, given)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _input(body: bytes) -> Any:
    if not body:
        return ""
    try:
        content = json.loads(body)
    except ValueError as error:
        raise ValueError(f"the body should be a JSON object with input, is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError("the body should be a JSON object with input")  # noqa: TRY004 (a wrong body, not a bug)
    return content.get("input", "")


def _data(function: Function, given: Any) -> TypedData:
    text = given if isinstance(given, str) else json.dumps(given)
    if function.trigger["type"] == "queueTrigger":
        return TypedData(string=text)
    return TypedData(json=text or "{}")


def _refusal(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message}}, status=status)
