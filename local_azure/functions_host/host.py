"""The dev host put together: index, listen, serve, stop."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from local_azure.background_tasks import until_stopped
from local_azure.functions_host.admin import Admin
from local_azure.functions_host.errors import DevHostError
from local_azure.functions_host.functions import SERVED_TRIGGERS, Function
from local_azure.functions_host.invocations import Invoker
from local_azure.functions_host.listeners import ListenerFactory, Listeners
from local_azure.functions_host.log_lines import configure_logging
from local_azure.functions_host.output_bindings import SERVED_OUTPUTS, OutputWriter
from local_azure.functions_host.routes import make_routes
from local_azure.functions_host.settings import HostOptions, app_settings, host_id, host_options
from local_azure.functions_host.web_server import WebServer
from local_azure.functions_host.worker import Worker

log = logging.getLogger("dev_host")


@dataclass(frozen=True, kw_only=True)
class Options:
    """The command line."""

    root: Path
    port: int
    """0 for any free port."""
    system_key_env: str = ""
    """The environment variable that holds the system key; empty for no key."""
    queue_lease_s: float = 30.0
    grace_s: float = 10.0
    storage_patience_s: float = 15.0
    verbose: bool = False


@dataclass(frozen=True, kw_only=True)
class DevHost:
    """One app, indexed and ready to be served."""

    options: Options
    settings: Mapping[str, str]
    host: HostOptions
    functions: list[Function]
    invoker: Invoker

    async def run(self, listening: socket.socket, stop: asyncio.Event) -> bool:
        """Serve on the bound socket until ``stop`` is set; whether all invocations then ended in time."""
        async with AsyncExitStack() as resources:
            listeners = await self._listeners(resources)
            await resources.enter_async_context(listeners)
            await self._serve_http(listening, listeners, resources)
            log.info(f"listening http://127.0.0.1:{listening.getsockname()[1]}")
            await until_stopped(stop, listeners.tasks)
            log.info(f"stopping; {len(self.invoker.running)} invocations are running")
            listeners.stop()
            drained = await self.invoker.drain(self.options.grace_s)
            if not drained:
                unfinished = sorted(self.invoker.running.values())
                log.warning(f"gave up on {unfinished} after {self.options.grace_s} s; their messages will reappear")
        return drained

    async def _listeners(self, resources: AsyncExitStack) -> Listeners:
        factory = ListenerFactory(
            host_id=host_id(self.options.root, self.settings),
            options=self.options,
            queue_options=self.host.queues,
            settings=self.settings,
            invoker=self.invoker,
            resources=resources,
        )
        return await factory.make(self.functions)

    async def _serve_http(self, listening: socket.socket, listeners: Listeners, resources: AsyncExitStack) -> None:
        routes = make_routes(self.functions, self.host.route_prefix)
        by_name = {function.name.lower(): function for function in self.functions}
        admin = Admin(functions=by_name, routes=routes, timers=listeners.timers, invoker=self.invoker)
        key = _system_key(self.options)
        server = WebServer(routes=routes, functions=by_name, invoker=self.invoker, admin=admin, system_key=key)
        runner = web.AppRunner(server.application(), access_log=None, shutdown_timeout=self.options.grace_s)
        await runner.setup()
        resources.push_async_callback(runner.cleanup)
        await web.SockSite(runner, listening).start()


async def serve(options: Options) -> bool:
    """Index and serve the app until SIGTERM or SIGINT; whether all invocations ended in time.

    Raises DevHostError where it cannot start.
    """
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    settings = app_settings(options.root, os.environ)
    os.environ.update(settings)
    host = host_options(options.root, settings)
    listening = _bind(options.port)
    worker = Worker(options.root)
    outputs = OutputWriter(settings=settings, message_encoding=host.queues.message_encoding)
    invoker = Invoker(worker=worker, outputs=outputs, root=options.root, verbose=options.verbose)
    configure_logging(invoker.running, verbose=options.verbose)
    functions = await worker.index(settings)
    _announce(functions)
    dev_host = DevHost(options=options, settings=settings, host=host, functions=functions, invoker=invoker)
    drained = await dev_host.run(listening, stop)
    worker.stop()
    return drained


def _bind(port: int) -> socket.socket:
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", port))
    except OSError as error:
        listening.close()
        raise DevHostError(
            f"port {port} on 127.0.0.1 cannot be used: {error.strerror}. Is another dev host running? "
            "Choose another with --port"
        ) from error
    return listening


def _system_key(options: Options) -> str:
    if not options.system_key_env:
        return ""
    key = os.environ.get(options.system_key_env, "")
    if not key:
        raise DevHostError(f"--system-key-env names {options.system_key_env}, which is not set")
    return key


def _announce(functions: list[Function]) -> None:
    for function in functions:
        trigger = str(function.trigger["type"])
        log.info(f"function {function.name}: {trigger}{' (disabled)' if function.disabled else ''}")
        if trigger not in SERVED_TRIGGERS:
            log.warning(f"function {function.name}: the dev host serves no {trigger}, it will not be called")
        for binding in function.bindings:
            if binding is not function.trigger and binding["type"] not in SERVED_OUTPUTS:
                log.warning(f"function {function.name}: the dev host does not serve the binding {binding['type']}")


def run(options: Options) -> None:
    """Run ``serve`` to its end."""
    if not asyncio.run(serve(options)):
        # Python would wait for the threads of functions that we have just given up on.
        logging.shutdown()
        os._exit(0)
