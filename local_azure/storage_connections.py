"""Storage connections in Azure Functions' convention: a setting with a connection string, or service URIs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from local_azure.azurite import DEFAULT_PORTS, HOST_ACCOUNT, HOST_ACCOUNT_KEY, connection_string

if TYPE_CHECKING:
    from azure.storage.blob.aio import BlobServiceClient
    from azure.storage.queue.aio import QueueServiceClient

DEVELOPMENT_STORAGE = connection_string(HOST_ACCOUNT, HOST_ACCOUNT_KEY, DEFAULT_PORTS)
"""Long form of ``UseDevelopmentStorage=true``: Azurite's published key and default ports.

The Python SDK does not support the short form: https://learn.microsoft.com/azure/storage/common/storage-use-azurite.
"""

ATTEMPT_TIMEOUT_S = 10
"""Time-out for connecting and for each read; an emulator on loopback answers sooner."""


class StorageConnectionError(ValueError):
    """The settings have no usable storage account; the message lists the settings that were read."""


@dataclass(frozen=True, kw_only=True)
class StorageConnection:
    """One named storage account. Callers close the clients that they get."""

    name: str
    """Name of the setting, such as ``AzureWebJobsStorage``."""
    connection_string: str = ""
    """Connection string; empty if there are URIs."""
    blob_uri: str = ""
    queue_uri: str = ""
    client_id: str = ""
    """The user-assigned identity for the URIs; empty for the default identity."""

    def blob_service(self) -> BlobServiceClient:
        """Return an asynchronous blob client for the account."""
        from azure.storage.blob.aio import BlobServiceClient

        if self.connection_string:
            return BlobServiceClient.from_connection_string(self.connection_string, **_timeouts())
        self._require(self.blob_uri, "blobServiceUri")
        return BlobServiceClient(self.blob_uri, credential=self._credential(), **_timeouts())

    def queue_service(self) -> QueueServiceClient:
        """Return an asynchronous queue client for the account."""
        from azure.storage.queue.aio import QueueServiceClient

        if self.connection_string:
            return QueueServiceClient.from_connection_string(self.connection_string, **_timeouts())
        self._require(self.queue_uri, "queueServiceUri")
        return QueueServiceClient(self.queue_uri, credential=self._credential(), **_timeouts())

    def _credential(self) -> Any:
        from azure.identity.aio import DefaultAzureCredential

        if self.client_id:
            return DefaultAzureCredential(managed_identity_client_id=self.client_id)
        return DefaultAzureCredential()

    def _require(self, uri: str, suffix: str) -> None:
        if not uri:
            raise StorageConnectionError(f"setting {self.name}__{suffix} is not set: it must hold a service URI")


def storage_connection(name: str, settings: Mapping[str, str]) -> StorageConnection:
    """Return the connection called `name` in `settings`: a connection string in ``name``, or ``name__…Uri``.

    Like the Functions host, it also accepts the name with the prefix ``AzureWebJobs``.
    Raises StorageConnectionError if there is neither.
    """
    for candidate in (name, f"AzureWebJobs{name}"):
        found = _from_settings(candidate, settings)
        if found:
            return found
    raise StorageConnectionError(
        f"storage connection {name} is not set: it needs a connection string in the setting {name}, or URIs in "
        f"{name}__blobServiceUri and {name}__queueServiceUri"
    )


def _from_settings(name: str, settings: Mapping[str, str]) -> StorageConnection | None:
    value = settings.get(name, "").strip()
    if value:
        development = value.rstrip(";").lower() == "usedevelopmentstorage=true"
        return StorageConnection(name=name, connection_string=DEVELOPMENT_STORAGE if development else value)
    blob_uri, queue_uri = settings.get(f"{name}__blobServiceUri", ""), settings.get(f"{name}__queueServiceUri", "")
    if not blob_uri and not queue_uri:
        return None
    client_id = settings.get(f"{name}__clientId", "")
    return StorageConnection(name=name, blob_uri=blob_uri, queue_uri=queue_uri, client_id=client_id)


def _timeouts() -> dict[str, Any]:
    return {"connection_timeout": ATTEMPT_TIMEOUT_S, "read_timeout": ATTEMPT_TIMEOUT_S}
