"""Tasks that are meant to run as long as a server does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable


async def until_stopped(stop: asyncio.Event, tasks: Iterable[asyncio.Task[None]]) -> None:
    """Wait for ``stop``, and raise what a task raised that ended before it.

    A listener that died without a word would leave a server that answers and does nothing.
    """
    stopped = asyncio.create_task(stop.wait())
    waiting: set[asyncio.Task[None] | asyncio.Task[bool]] = {stopped, *tasks}
    try:
        while not stopped.done():
            ended, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
    finally:
        stopped.cancel()
