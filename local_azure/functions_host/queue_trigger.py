"""Queue triggers: fetch, call, then delete, release or poison, as the Functions host's queue processor does."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field

from azure.core.exceptions import AzureError, ResourceExistsError
from azure.storage.queue import QueueMessage
from azure.storage.queue.aio import QueueClient

from local_azure.functions_host.functions import Function
from local_azure.functions_host.invocations import Invoker
from local_azure.functions_host.message_lease import MessageLease
from local_azure.functions_host.queue_messages import UndecodableMessageError, decode_body, message_metadata
from local_azure.functions_host.settings import QueueOptions

log = logging.getLogger("dev_host")

MIN_POLLING_INTERVAL_S = 0.1
"""The Functions host's shortest pause between two looks at an empty queue."""


@dataclass(kw_only=True)
class QueueListener:
    """Serves one queue function until told to stop."""

    function: Function
    queue: QueueClient
    poison: QueueClient
    options: QueueOptions
    invoker: Invoker
    lease_s: float
    """How long a fetched message stays invisible without renewal: what a killed host costs."""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _running: set[asyncio.Task[None]] = field(default_factory=set)

    async def run(self) -> None:
        """Fetch and work until ``stopping`` is set, then finish what was fetched."""
        pause_s = MIN_POLLING_INTERVAL_S
        while not self.stopping.is_set():
            messages = await self._fetch()
            for message in messages:
                self._start(message)
            pause_s = MIN_POLLING_INTERVAL_S if messages else min(pause_s * 2, self.options.max_polling_interval_s)
            await self._wait_for_room() if self._running else await self._rest(pause_s)
        if self._running:
            await asyncio.wait(self._running)

    async def _fetch(self) -> list[QueueMessage]:
        pages = self.queue.receive_messages(
            messages_per_page=self.options.batch_size, visibility_timeout=max(1, round(self.lease_s))
        ).by_page()
        try:
            async for page in pages:
                return [message async for message in page]
        except AzureError as error:
            log.warning(f"queue {self.queue.queue_name} cannot be read, will try again: {_first_line(error)}")
        return []

    def _start(self, message: QueueMessage) -> None:
        task = asyncio.create_task(self._process(message))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _wait_for_room(self) -> None:
        """Until few enough run to fetch again; a busy queue is looked at as soon as one ends."""
        if len(self._running) <= self.options.new_batch_threshold:
            await self._rest(MIN_POLLING_INTERVAL_S)
        while len(self._running) > self.options.new_batch_threshold and not self.stopping.is_set():
            stop = asyncio.create_task(self.stopping.wait())
            await asyncio.wait({*self._running, stop}, return_when=asyncio.FIRST_COMPLETED)
            stop.cancel()

    async def _rest(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):  # the time-out is the normal case: nobody asked us to stop
            await asyncio.wait_for(self.stopping.wait(), seconds)

    async def _process(self, message: QueueMessage) -> None:
        try:
            await self._work_on(message)
        except AzureError as error:
            log.warning(
                f"message {message.id} was handled, but queue {self.queue.queue_name} could not be told and will "
                f"deliver it again: {_first_line(error)}"
            )

    async def _work_on(self, message: QueueMessage) -> None:
        tries = message.dequeue_count or 1
        if tries > self.options.max_dequeue_count:
            await self._poison(message, message.pop_receipt, f"delivered {tries} times")
            return
        try:
            body = decode_body(message.content, self.options.message_encoding)
        except UndecodableMessageError as error:
            await self._poison(message, message.pop_receipt, str(error))
            return
        async with MessageLease(self.queue, message, self.lease_s) as lease:
            outcome = await self.invoker.invoke(self.function, body, message_metadata(message))
        if outcome.succeeded:
            await self.queue.delete_message(message.id, lease.pop_receipt)
        elif tries >= self.options.max_dequeue_count:
            await self._poison(message, lease.pop_receipt, f"failed {tries} times")
        else:
            await self._release(message, lease.pop_receipt)

    async def _release(self, message: QueueMessage, pop_receipt: str | None) -> None:
        """Let it be fetched again after host.json's visibilityTimeout."""
        await self.queue.update_message(
            message.id, pop_receipt, visibility_timeout=round(self.options.visibility_timeout_s)
        )

    async def _poison(self, message: QueueMessage, pop_receipt: str | None, reason: str) -> None:
        with contextlib.suppress(ResourceExistsError):  # made by an earlier poison message
            await self.poison.create_queue()
        await self.poison.send_message(message.content, time_to_live=-1)
        await self.queue.delete_message(message.id, pop_receipt)
        log.error(f"message {message.id} was moved to queue {self.poison.queue_name}: {reason}")


def _first_line(error: Exception) -> str:
    return str(error).split("\n", maxsplit=1)[0]
