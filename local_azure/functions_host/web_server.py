"""Everything that the dev host answers over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aiohttp import web

from local_azure.functions_host import event_grid_trigger, http_trigger
from local_azure.functions_host.admin import Admin
from local_azure.functions_host.functions import Function
from local_azure.functions_host.invocations import Invoker
from local_azure.functions_host.routes import Route, find_route


@dataclass(frozen=True, kw_only=True)
class WebServer:
    """The handlers; ``application`` wires them to paths."""

    routes: list[Route]
    functions: Mapping[str, Function]
    """By name in lower case."""
    invoker: Invoker
    admin: Admin
    system_key: str
    """Empty where none is required."""

    def application(self) -> web.Application:
        """The host's own paths first, all others to the app's routes."""
        application = web.Application(client_max_size=http_trigger.MAX_BODY_BYTES)
        application.router.add_get("/admin/host/status", self.admin.status)
        application.router.add_get("/admin/functions", self.admin.list_functions)
        application.router.add_post("/admin/functions/{name}", self.admin.start_function)
        for method in ("POST", "OPTIONS"):
            application.router.add_route(method, "/runtime/webhooks/eventgrid", self._event_grid)
        application.router.add_route("*", "/{path:.*}", self._http_function)
        return application

    async def _http_function(self, request: web.Request) -> web.Response:
        # The encoded path: a %2F in a parameter is not a separator.
        match = find_route(self.routes, request.method, request.raw_path.partition("?")[0])
        if match is None:
            return web.Response(status=404)
        return await http_trigger.answer(request, match, self.invoker)

    async def _event_grid(self, request: web.Request) -> web.Response:
        served = {name: one for name, one in self.functions.items() if one.trigger_is("eventGridTrigger")}
        return await event_grid_trigger.receive(request, served, self.invoker, self.system_key)
