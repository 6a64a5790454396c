"""The dev host's HTTP API: its admin endpoints and the app's routes."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from aiohttp import web

from local_azure.functions_host import http_trigger
from local_azure.functions_host.functions import Function
from local_azure.functions_host.http_trigger import Route, find_route
from local_azure.functions_host.invocations import Invoker
from local_azure.functions_host.keys import Keys, Level
from local_azure.functions_host.timer_trigger import TimerListener
from local_azure.functions_host.worker import TypedData
from local_azure.http_server import json_object, refusal


@dataclass(kw_only=True)
class DevHostApi:
    """The handlers; `application` connects them to paths."""

    routes: list[Route]
    functions: Mapping[str, Function]
    """By name in lower case."""
    timers: Mapping[str, TimerListener]
    """By function name."""
    invoker: Invoker
    keys: Keys | None
    """The app's keys; None if no keys are required."""
    started: float = field(default_factory=time.monotonic)
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    def application(self) -> web.Application:
        """Return the application: the host's own paths, and the app's routes for all other paths."""
        application = web.Application(client_max_size=http_trigger.MAX_BODY_BYTES)
        application.router.add_get("/admin/host/status", self._for_admins(self._status))
        application.router.add_get("/admin/functions", self._for_admins(self._list_functions))
        application.router.add_post("/admin/functions/{name}", self._for_admins(self._start_function))
        application.router.add_route("*", "/{path:(?s:.*)}", self._http_function)
        return application

    async def _http_function(self, request: web.Request) -> web.Response:
        # The encoded path is used, because a %2F in a parameter is not a separator.
        match = find_route(self.routes, request.method, request.raw_path.partition("?")[0])
        if match is None:
            return web.Response(status=404)
        level = str(match.function.trigger.get("authLevel") or Level.FUNCTION)
        if self.keys is not None and not self.keys.open_function(request, match.function.name, level):
            return web.Response(status=401)
        return await http_trigger.answer(request, match, self.invoker)

    def _for_admins(
        self, handler: Callable[[web.Request], Awaitable[web.Response]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(request: web.Request) -> web.Response:
            if self.keys is not None and not self.keys.open_admin(request):
                return web.Response(status=401)
            return await handler(request)

        return answer

    async def _status(self, _request: web.Request) -> web.Response:
        return web.json_response(
            {
                "id": "dev-host",
                "state": "Running",
                "version": f"azure-functions-runtime {version('azure-functions-runtime')}",
                "processUptime": round((time.monotonic() - self.started) * 1000),
                "functionCount": len(self.functions),
                "runningInvocations": len(self.invoker.running),
                "running": Counter(self.invoker.running.values()),
                "ended": self.invoker.ended,
            }
        )

    async def _list_functions(self, request: web.Request) -> web.Response:
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

    async def _start_function(self, request: web.Request) -> web.Response:
        """Start the function in the path with the body's ``input``; answer 202 at once."""
        function = self.functions.get(request.match_info["name"].lower())
        if function is None:
            return refusal(404, f"there is no function called {request.match_info['name']!r}")
        if str(function.trigger["type"]).lower() == "httptrigger":
            return refusal(400, f"{function.name} is an HTTP function: call its route")
        body = await request.read()
        try:
            value = json_object(body).get("input", "") if body else ""
        except ValueError as error:
            return refusal(400, str(error))
        self._start(function, value)
        return web.Response(status=202)

    def _start(self, function: Function, value: Any) -> None:
        timer = self.timers.get(function.name)
        if timer:
            task: asyncio.Task[Any] = asyncio.create_task(timer.fire(past_due=False))
        else:
            task = asyncio.create_task(self.invoker.invoke(function, _trigger_data(function, value)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _trigger_data(function: Function, value: Any) -> TypedData:
    text = value if isinstance(value, str) else json.dumps(value)
    if function.trigger["type"] == "queueTrigger":
        return TypedData(string=text)
    return TypedData(json=text or "{}")
