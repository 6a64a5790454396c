"""Holding a queue message invisible to others for as long as a function works on it."""

from __future__ import annotations

import asyncio
import logging
from types import TracebackType
from typing import Self

from azure.core.exceptions import AzureError
from azure.storage.queue import QueueMessage
from azure.storage.queue.aio import QueueClient

log = logging.getLogger("dev_host")


class MessageLease:
    """Renews a message's invisibility every third of its length, inside ``async with``.

    The pop receipt changes with every renewal: use ``pop_receipt`` after the block.
    """

    def __init__(self, queue: QueueClient, message: QueueMessage, length_s: float) -> None:
        self._queue = queue
        self._message = message
        self._length_s = length_s
        self._ended = asyncio.Event()
        self._renewal: asyncio.Task[None] | None = None
        self.pop_receipt: str | None = message.pop_receipt
        """The receipt with which the message can be deleted; the SDK's type allows None, the service does not."""

    async def __aenter__(self) -> Self:
        self._renewal = asyncio.create_task(self._renew())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._renewal:
            # Awaited, not cancelled: a renewal cut off on its way would leave us with a receipt of the past.
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
