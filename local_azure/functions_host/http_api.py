"""Everything that the dev host answers over HTTP: its admin endpoints, Event Grid's webhook, the app's routes."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from aiohttp import web

from local_azure.functions_host import http_trigger
from local_azure.functions_host.functions import Function
from local_azure.functions_host.http_trigger import Route, find_route
from local_azure.functions_host.invocations import Invoker
from local_azure.functions_host.keys import EVENT_GRID_KEY, Keys, Level
from local_azure.functions_host.timer_trigger import TimerListener
from local_azure.functions_host.worker import TypedData
from local_azure.http_server import json_object, refusal

MAX_EVENTS = 5_000
"""Event Grid's largest batch: https://learn.microsoft.com/azure/event-grid/delivery-and-retry."""


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
    """None where everything is open."""
    started: float = field(default_factory=time.monotonic)
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    def application(self) -> web.Application:
        """Return the application: the host's own paths first, all others go to the app's routes."""
        application = web.Application(client_max_size=http_trigger.MAX_BODY_BYTES)
        application.router.add_get("/admin/host/status", self._for_admins(self._status))
        application.router.add_get("/admin/functions", self._for_admins(self._list_functions))
        application.router.add_post("/admin/functions/{name}", self._for_admins(self._start_function))
        for method in ("POST", "OPTIONS"):
            application.router.add_route(method, "/runtime/webhooks/eventgrid", self._event_grid)
        application.router.add_route("*", "/{path:(?s:.*)}", self._http_function)
        return application

    async def _http_function(self, request: web.Request) -> web.Response:
        # The encoded path: a %2F in a parameter is not a separator.
        match = find_route(self.routes, request.method, request.raw_path.partition("?")[0])
        if match is None:
            return web.Response(status=404)
        level = str(match.function.trigger.get("authLevel") or Level.FUNCTION)
        if self.keys is not None and not self.keys.open_function(request, match.function.name, level):
            return web.Response(status=401)
        return await http_trigger.answer(request, match, self.invoker)

    async def _event_grid(self, request: web.Request) -> web.Response:
        served = {name: one for name, one in self.functions.items() if one.trigger_is("eventGridTrigger")}
        if self.keys is not None and not self.keys.open_webhook(request, EVENT_GRID_KEY):
            return refusal(401, "the code in the query is not the system key")
        return await receive_events(request, served, self.invoker)

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
        """Start the function that the path names with the ``input`` of the body; answer 202 at once."""
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


async def receive_events(request: web.Request, functions: Mapping[str, Function], invoker: Invoker) -> web.Response:
    """Answer one request of Event Grid to `/runtime/webhooks/eventgrid?functionName=X&code=KEY`.

    Behaviour after the Event Grid extension of the Functions host: it answers the handshakes itself, calls the
    function once per event, and fails the whole request when one event fails.
    """
    name = request.query.get("functionName", "")
    function = functions.get(name.lower())
    if function is None:
        return refusal(404, f"there is no function with an Event Grid trigger called {name!r}")
    if request.method == "OPTIONS":
        return _cloud_events_handshake(request)
    kind = request.headers.get("aeg-event-type", "").lower()
    if kind == "unsubscribe":
        return web.Response(status=202)
    return await _call_for_each(request, function, invoker, kind)


async def _call_for_each(request: web.Request, function: Function, invoker: Invoker, kind: str) -> web.Response:
    try:
        events = _events(await request.read())
    except ValueError as error:
        return refusal(400, str(error))
    if kind == "subscriptionvalidation":
        return _handshake(events)
    if kind != "notification" and "cloudevents" not in request.content_type:
        return refusal(400, f"the header aeg-event-type has an unknown value: {kind!r}")
    calls = [invoker.invoke(function, TypedData(json=json.dumps(event))) for event in events]
    failed = [outcome for outcome in await asyncio.gather(*calls) if not outcome.succeeded]
    return refusal(500, failed[0].error) if failed else web.Response(status=202)


def _events(body: bytes) -> list[dict[str, Any]]:
    try:
        content = json.loads(body)
    except ValueError as error:
        raise ValueError(f"the body must be JSON: {error}") from error
    events = content if isinstance(content, list) else [content]
    if not events or len(events) > MAX_EVENTS or not all(isinstance(event, dict) for event in events):
        raise ValueError(f"the body must be an event or an array of 1 to {MAX_EVENTS} events")
    return events


def _handshake(events: list[dict[str, Any]]) -> web.Response:
    data = events[0].get("data")
    code = data.get("validationCode") if isinstance(data, dict) else None
    if not isinstance(code, str):
        return refusal(400, "a SubscriptionValidation event must carry data.validationCode")
    return web.json_response({"validationResponse": code})


def _cloud_events_handshake(request: web.Request) -> web.Response:
    """https://github.com/cloudevents/spec/blob/v1.0/http-webhook.md#4-abuse-protection."""
    origin = request.headers.get("WebHook-Request-Origin", "eventgrid.azure.net")
    return web.Response(headers={"WebHook-Allowed-Origin": origin, "WebHook-Allowed-Rate": "*"})
