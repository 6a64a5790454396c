"""Where timer statuses are kept: the host account's blobs, as the Functions host does."""

from __future__ import annotations

import contextlib
import json
import logging
from datetime import datetime

from azure.core.exceptions import AzureError, ResourceExistsError, ResourceNotFoundError
from azure.storage.blob.aio import BlobServiceClient

from local_azure.functions_host.timer_trigger import TimerStatus

log = logging.getLogger("dev_host")

CONTAINER = "azure-webjobs-hosts"


class NoTimerMemory:
    """Forgets: for timers that shall not look back, and where there is no storage."""

    async def load(self, function_name: str) -> TimerStatus | None:  # noqa: ARG002 (the port's signature)
        """Nothing."""
        return None

    async def save(self, function_name: str, status: TimerStatus) -> None:
        """Not kept."""


class BlobTimerMemory:
    """One small blob per timer. A failure is logged and costs only the past-due flag."""

    def __init__(self, service: BlobServiceClient, host_id: str) -> None:
        """``host_id`` keeps apart the apps that share a storage account."""
        self._container = service.get_container_client(CONTAINER)
        self._host_id = host_id

    async def load(self, function_name: str) -> TimerStatus | None:
        """The saved status; None where there is none that can be read."""
        try:
            blob = await self._container.download_blob(self._path(function_name))
            content = json.loads(await blob.readall())
            return TimerStatus(
                last=datetime.fromisoformat(content["Last"]), next=datetime.fromisoformat(content["Next"])
            )
        except ResourceNotFoundError:
            return None
        except (AzureError, ValueError, KeyError) as error:
            log.warning(f"timer {function_name}: its saved status cannot be read: {error}")
            return None

    async def save(self, function_name: str, status: TimerStatus) -> None:
        """Replace the saved status."""
        try:
            with contextlib.suppress(ResourceExistsError):  # made by an earlier timer
                await self._container.create_container()
            await self._container.upload_blob(self._path(function_name), json.dumps(status.as_json()), overwrite=True)
        except AzureError as error:
            log.warning(f"timer {function_name}: its status cannot be saved: {error}")

    def _path(self, function_name: str) -> str:
        return f"timers/{self._host_id}/{function_name}/status"
