"""The queue and timer listeners of an app: made, started and stopped together."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

from azure.storage.queue.aio import QueueServiceClient

from local_azure.functions_host.functions import Function
from local_azure.functions_host.invocations import Invoker
from local_azure.functions_host.queue_trigger import QueueListener
from local_azure.functions_host.schedules import parse_schedule
from local_azure.functions_host.settings import QueueOptions
from local_azure.functions_host.storage_readiness import create_queue
from local_azure.functions_host.timer_memory import BlobTimerMemory, NoTimerMemory
from local_azure.functions_host.timer_trigger import TimerListener, TimerMemory
from local_azure.storage_connections import StorageConnectionError, storage_connection

HOST_STORAGE = "AzureWebJobsStorage"


class ListenerOptions(Protocol):
    """What the listeners need of the command line."""

    @property
    def queue_lease_s(self) -> float:
        """Invisibility of a fetched message, in seconds."""

    @property
    def storage_patience_s(self) -> float:
        """How long to wait for storage at the start, in seconds."""


@dataclass(kw_only=True)
class Listeners:
    """All listeners; ``async with`` starts them and waits for their end."""

    queues: list[QueueListener]
    timers: dict[str, TimerListener]
    """By function name."""
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    """One per listener, while they run."""

    async def __aenter__(self) -> Self:
        self.tasks = [asyncio.create_task(listener.run()) for listener in self._all()]
        return self

    def stop(self) -> None:
        """Take no new messages and fire no timer from now on."""
        for listener in self._all():
            listener.stopping.set()

    def _all(self) -> list[QueueListener | TimerListener]:
        return [*self.queues, *self.timers.values()]

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        # A timer whose function outlives the grace period would keep us waiting for ever.
        _, pending = await asyncio.wait(self.tasks, timeout=1.0) if self.tasks else (set(), set())
        for task in pending:
            task.cancel()


@dataclass(frozen=True, kw_only=True)
class ListenerFactory:
    """Makes the listeners of an app; the clients that they use are closed with ``resources``."""

    host_id: str
    options: ListenerOptions
    queue_options: QueueOptions
    settings: Mapping[str, str]
    invoker: Invoker
    resources: AsyncExitStack

    async def make(self, functions: list[Function]) -> Listeners:
        """Listeners for every queue and timer function that is not disabled; makes the queues."""
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
