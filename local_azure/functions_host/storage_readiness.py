"""Waiting for storage when the host starts, and making the queues that its functions listen to."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError, ResourceExistsError
from azure.storage.queue.aio import QueueClient

from local_azure.functions_host.errors import DevHostError

log = logging.getLogger("dev_host")


async def create_queue(queue: QueueClient, setting: str, patience_s: float) -> None:
    """Create ``queue`` if absent, retrying while storage does not answer.

    Raises DevHostError after ``patience_s``, or at once where storage answers with a refusal.
    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            with contextlib.suppress(ResourceExistsError):  # made by an earlier start
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
