"""The dev host: indexes an app, starts its listeners, serves it over HTTP, writes its log, and stops it."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from azure.storage.queue.aio import QueueServiceClient

from local_azure.functions_host.functions import SERVED_TRIGGERS, Function
from local_azure.functions_host.http_api import DevHostApi
from local_azure.functions_host.http_trigger import make_routes
from local_azure.functions_host.invocations import SERVED_OUTPUTS, Invoker, OutputWriter
from local_azure.functions_host.keys import read_keys
from local_azure.functions_host.queue_trigger import QueueListener, create_queue
from local_azure.functions_host.settings import (
    HostOptions,
    QueueOptions,
    app_settings,
    host_id,
    host_options,
)
from local_azure.functions_host.timer_trigger import (
    BlobTimerMemory,
    NoTimerMemory,
    TimerListener,
    TimerMemory,
    parse_schedule,
)
from local_azure.functions_host.worker import Worker
from local_azure.http_server import bind, port_of, serving, stop_on_signals, until_stopped
from local_azure.storage_connections import StorageConnectionError, storage_connection
from shared.safe_text import log_text, make_logging_safe, mask_secrets, one_line

log = logging.getLogger("dev_host")

HOST_STORAGE = "AzureWebJobsStorage"

STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
QUIET_LOGGERS = ("azure", "aiohttp.access", "urllib3", "asyncio", "httpx")
"""Loggers that log every request at INFO, which hides the app's lines."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The command line."""

    root: Path
    """Folder of the app: function_app.py and host.json."""
    port: int
    """Port to listen on; 0 for any free port."""
    keys_env: str
    """The environment variable with the app's keys; empty if no keys are required."""
    queue_lease_s: float
    """How long a fetched message stays invisible. The messages of a killed host reappear after that."""
    grace_s: float
    """How long running invocations may continue after the host was stopped."""
    storage_patience_s: float
    """How long the start waits for storage."""
    verbose: bool


def run(options: Options) -> None:
    """Serve the app until SIGTERM or SIGINT. Raises DevHostError if it cannot start."""
    if not asyncio.run(serve(options)):
        # A normal exit would wait for threads of functions that exceeded the grace period.
        logging.shutdown()
        os._exit(0)


async def serve(options: Options) -> bool:
    """Index and serve the app until SIGTERM or SIGINT; return whether all invocations ended in time."""
    stop = stop_on_signals()
    settings = app_settings(options.root, os.environ)
    os.environ.update(settings)
    host = host_options(options.root, settings)
    with bind(options.port) as listening:
        worker = Worker(options.root)
        outputs = OutputWriter(settings=settings, message_encoding=host.queues.message_encoding)
        invoker = Invoker(worker=worker, outputs=outputs, root=options.root, verbose=options.verbose)
        configure_logging(invoker.running, verbose=options.verbose)
        functions = await worker.index(settings)
        _log_functions(functions)
        dev_host = DevHost(options=options, settings=settings, host=host, functions=functions, invoker=invoker)
        drained = await dev_host.run(listening, stop)
        worker.stop()
    return drained


def _log_functions(functions: list[Function]) -> None:
    for function in functions:
        trigger = str(function.trigger["type"])
        log.info(f"function {function.name}: {trigger}{' (disabled)' if function.disabled else ''}")
        if trigger not in SERVED_TRIGGERS:
            log.warning(f"function {function.name}: the dev host serves no {trigger}, it will not be called")
        for binding in function.bindings:
            if binding is not function.trigger and binding["type"] not in SERVED_OUTPUTS:
                log.warning(f"function {function.name}: the dev host does not serve the binding {binding['type']}")


@dataclass(frozen=True, kw_only=True)
class DevHost:
    """One indexed app."""

    options: Options
    settings: Mapping[str, str]
    host: HostOptions
    functions: list[Function]
    invoker: Invoker

    async def run(self, listening: socket.socket, stop: asyncio.Event) -> bool:
        """Serve on the bound socket until `stop` is set; return whether all invocations then ended in time."""
        async with AsyncExitStack() as resources:
            listeners = await self._listeners(resources)
            await resources.enter_async_context(listeners)
            application = self._http_api(listeners).application()
            await resources.enter_async_context(serving(application, listening, grace_s=self.options.grace_s))
            log.info(f"listening http://127.0.0.1:{port_of(listening)}")
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

    def _http_api(self, listeners: Listeners) -> DevHostApi:
        return DevHostApi(
            routes=make_routes(self.functions, self.host.route_prefix),
            functions={function.name.lower(): function for function in self.functions},
            timers=listeners.timers,
            invoker=self.invoker,
            keys=read_keys(os.environ, self.options.keys_env),
        )


@dataclass(kw_only=True)
class Listeners:
    """All queue and timer listeners of an app. ``async with`` starts them and waits for their end."""

    queues: list[QueueListener]
    timers: dict[str, TimerListener]
    """Timer listeners by function name."""
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    """One task per listener, while they run."""

    async def __aenter__(self) -> Self:
        self.tasks = [asyncio.create_task(listener.run()) for listener in self._all()]
        return self

    def stop(self) -> None:
        """Stop fetching messages and firing timers."""
        for listener in self._all():
            listener.stopping.set()

    def _all(self) -> list[QueueListener | TimerListener]:
        return [*self.queues, *self.timers.values()]

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        # Otherwise a timer whose function exceeds the grace period would block the end forever.
        _, pending = await asyncio.wait(self.tasks, timeout=1.0) if self.tasks else (set(), set())
        for task in pending:
            task.cancel()


@dataclass(frozen=True, kw_only=True)
class ListenerFactory:
    """Creates the listeners of an app. Their clients are closed with `resources`."""

    host_id: str
    options: Options
    queue_options: QueueOptions
    settings: Mapping[str, str]
    invoker: Invoker
    resources: AsyncExitStack

    async def make(self, functions: list[Function]) -> Listeners:
        """Create the queues that are missing; return a listener for every enabled queue and timer function."""
        queued = [function for function in functions if function.trigger_is("queueTrigger")]
        settings_used = sorted({_connection(function) for function in queued})
        services = {setting: await self._open(setting) for setting in settings_used}
        queues = [self._queue_listener(function, services[_connection(function)]) for function in queued]
        for listener in queues:
            await create_queue(listener.queue, _connection(listener.function), self.options.storage_patience_s)
        timed = [function for function in functions if function.trigger_is("timerTrigger")]
        memory = await self._timer_memory() if timed else NoTimerMemory()
        return Listeners(queues=queues, timers={one.name: self._timer_listener(one, memory) for one in timed})

    async def _open(self, setting: str) -> QueueServiceClient:
        service = storage_connection(setting, self.settings).queue_service()
        return await self.resources.enter_async_context(service)

    def _queue_listener(self, function: Function, service: QueueServiceClient) -> QueueListener:
        name = str(function.trigger["queueName"])
        return QueueListener(
            function=function,
            queue=service.get_queue_client(name),
            poison=service.get_queue_client(f"{name}-poison"),
            options=self.queue_options,
            invoker=self.invoker,
            lease_s=self.options.queue_lease_s,
        )

    def _timer_listener(self, function: Function, memory: TimerMemory) -> TimerListener:
        use_monitor = function.trigger.get("useMonitor", True) is not False
        return TimerListener(
            function=function,
            schedule=parse_schedule(str(function.trigger["schedule"]), function.name),
            invoker=self.invoker,
            memory=memory if use_monitor else NoTimerMemory(),
        )

    async def _timer_memory(self) -> TimerMemory:
        try:
            service = storage_connection(HOST_STORAGE, self.settings).blob_service()
        except StorageConnectionError:
            return NoTimerMemory()
        return BlobTimerMemory(await self.resources.enter_async_context(service), self.host_id)


def _connection(function: Function) -> str:
    return str(function.trigger.get("connection") or HOST_STORAGE)


class LineFormatter(logging.Formatter):
    """Formats records: ``10:00:00.123 INFO  shard_uploaded function_app.ingest: Shard accepted  shard=…``."""

    def __init__(self, running: Mapping[str, str]) -> None:
        """`running` maps invocation ids to function names, and may change."""
        super().__init__()
        self._running = running

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, followed by the lines of the stack trace if the app logs an exception."""
        moment = datetime.fromtimestamp(record.created, tz=UTC).strftime("%H:%M:%S.%f")[:-3]
        where = " ".join(part for part in (self._function_name(), record.name) if part)
        extra = "".join(
            f"  {key}={one_line(mask_secrets(str(value)))}"
            for key, value in vars(record).items()
            if key not in STANDARD_FIELDS
        )
        line = f"{moment} {record.levelname:<7} {where}: {record.getMessage()}{extra}"
        if record.exc_info:
            line += "\n" + (record.exc_text or self.formatException(record.exc_info))
        return log_text(line)

    def _function_name(self) -> str:
        from azure_functions_runtime import invocation_id_cv

        invocation_id = invocation_id_cv.get()
        return self._running.get(str(invocation_id), "") if invocation_id else ""


def configure_logging(running: Mapping[str, str], *, verbose: bool) -> None:
    """Send all records to standard output as lines; INFO and above, or everything when ``verbose``."""
    make_logging_safe()
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(LineFormatter(running))
    logging.basicConfig(handlers=[handler], level=logging.DEBUG if verbose else logging.INFO, force=True)
    for name in QUIET_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
