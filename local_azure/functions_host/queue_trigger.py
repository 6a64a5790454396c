"""Queue triggers: fetch, call, then delete, release or poison, like the Functions host's queue processor."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Literal, Self

from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError, ResourceExistsError
from azure.storage.queue import QueueMessage
from azure.storage.queue.aio import QueueClient

from local_azure.functions_host.functions import Function
from local_azure.functions_host.invocations import Invoker
from local_azure.functions_host.settings import DevHostError, QueueOptions
from local_azure.functions_host.worker import TypedData

log = logging.getLogger("dev_host")

MIN_POLLING_INTERVAL_S = 0.1
"""The Functions host's minimum pause between two polls of an empty queue."""


@dataclass(kw_only=True)
class QueueListener:
    """Serves one queue function until `stopping` is set."""

    function: Function
    queue: QueueClient
    poison: QueueClient
    options: QueueOptions
    invoker: Invoker
    lease_s: float
    """How long a fetched message stays invisible without renewal, for example after the host was killed."""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _running: set[asyncio.Task[None]] = field(default_factory=set)

    async def run(self) -> None:
        """Fetch and handle messages until ``stopping`` is set, then finish the fetched ones."""
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
        """Wait until more messages may be fetched; a busy queue is polled as soon as an invocation ends."""
        if len(self._running) <= self.options.new_batch_threshold:
            await self._rest(MIN_POLLING_INTERVAL_S)
        while len(self._running) > self.options.new_batch_threshold and not self.stopping.is_set():
            stop = asyncio.create_task(self.stopping.wait())
            await asyncio.wait({*self._running, stop}, return_when=asyncio.FIRST_COMPLETED)
            stop.cancel()

    async def _rest(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):  # A time-out is the normal case.
            await asyncio.wait_for(self.stopping.wait(), seconds)

    async def _process(self, message: QueueMessage) -> None:
        try:
            await self._work_on(message)
        except AzureError as error:
            log.warning(
                f"message {message.id} was handled, but queue {self.queue.queue_name} could not be updated and will "
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
        """Make the message visible again after host.json's visibilityTimeout."""
        await self.queue.update_message(
            message.id, pop_receipt, visibility_timeout=round(self.options.visibility_timeout_s)
        )

    async def _poison(self, message: QueueMessage, pop_receipt: str | None, reason: str) -> None:
        with contextlib.suppress(ResourceExistsError):  # created by an earlier poison message
            await self.poison.create_queue()
        await self.poison.send_message(message.content, time_to_live=-1)
        await self.queue.delete_message(message.id, pop_receipt)
        log.error(f"message {message.id} was moved to queue {self.poison.queue_name}: {reason}")


class MessageLease:
    """Renews a message's invisibility after every third of its duration, inside ``async with``.

    The pop receipt changes with every renewal, so use ``pop_receipt`` after the block.
    """

    def __init__(self, queue: QueueClient, message: QueueMessage, length_s: float) -> None:
        self._queue = queue
        self._message = message
        self._length_s = length_s
        self._ended = asyncio.Event()
        self._renewal: asyncio.Task[None] | None = None
        self.pop_receipt: str | None = message.pop_receipt
        """The receipt that deletes the message; the SDK's type allows None, the service does not."""

    async def __aenter__(self) -> Self:
        self._renewal = asyncio.create_task(self._renew())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._renewal:
            # Awaited, not cancelled, because an interrupted renewal would leave an outdated receipt.
            await self._renewal

    async def _renew(self) -> None:
        while not await _set_within(self._ended, self._length_s / 3):
            try:
                renewed = await self._queue.update_message(
                    self._message.id, self.pop_receipt, visibility_timeout=max(1, round(self._length_s))
                )
            except AzureError as error:
                log.warning(f"message {self._message.id}: its lease could not be renewed: {error}")
            else:
                self.pop_receipt = renewed.pop_receipt


async def _set_within(event: asyncio.Event, timeout_s: float) -> bool:
    try:
        await asyncio.wait_for(event.wait(), timeout_s)
    except TimeoutError:
        return False
    return True


class UndecodableMessageError(ValueError):
    """A message does not have host.json's encoding, and can never be processed."""


def decode_body(content: str, encoding: Literal["base64", "none"]) -> TypedData:
    """Return the message's text, or its bytes if they are not UTF-8. Raises UndecodableMessageError."""
    if encoding == "none":
        return TypedData(string=content)
    try:
        body = base64.b64decode(content, validate=True)
    except ValueError as error:  # also raised for text that is not ASCII
        raise UndecodableMessageError(
            f"it is not base64 (extensions.queues.messageEncoding in host.json): {content[:60]!r}"
        ) from error
    try:
        return TypedData(string=body.decode("utf-8"))
    except UnicodeDecodeError:
        return TypedData(bytes=body)


def message_metadata(message: QueueMessage) -> dict[str, TypedData]:
    """Return the trigger metadata from which the runtime creates a `func.QueueMessage`."""
    moments = {
        "InsertionTime": message.inserted_on,
        "ExpirationTime": message.expires_on,
        "NextVisibleTime": message.next_visible_on,
    }
    metadata = {name: TypedData(string=_utc(moment)) for name, moment in moments.items() if moment is not None}
    metadata["Id"] = TypedData(string=message.id)
    metadata["PopReceipt"] = TypedData(string=message.pop_receipt)
    metadata["DequeueCount"] = TypedData(json=str(message.dequeue_count))
    return metadata


def _utc(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S+00:00")


async def create_queue(queue: QueueClient, setting: str, patience_s: float) -> None:
    """Create `queue` if it does not exist, and retry while storage does not answer.

    Raises DevHostError after `patience_s`, or at once if storage refuses.
    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            with contextlib.suppress(ResourceExistsError):  # created by an earlier start
                await queue.create_queue(retry_total=0)
            return
        except (ClientAuthenticationError, HttpResponseError) as error:
            raise DevHostError(_message(queue, setting, f"refuses: {_first_line(error)}")) from error
        except AzureError as error:
            if time.monotonic() >= deadline:
                seen = f"did not answer within {patience_s:.0f} s: {_first_line(error)}. Is Azurite running?"
                raise DevHostError(_message(queue, setting, seen)) from error
            log.info(f"waiting for storage at {queue.primary_hostname}")
            await asyncio.sleep(0.5)


def _message(queue: QueueClient, setting: str, seen: str) -> str:
    return f"queue {queue.queue_name} of setting {setting}: storage at {queue.primary_hostname} {seen}"


def _first_line(error: Exception) -> str:
    return str(error).split("\n", maxsplit=1)[0]
