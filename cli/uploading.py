"""Writes shards into the data container."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from azure.core.exceptions import AzureError, ResourceExistsError
from azure.storage.blob import BlobServiceClient, ContainerClient

from cli.errors import CliError
from cli.progress_bar import Step

MAX_BLOCK_BYTES = 8 << 20
CONCURRENCY = 4
"""Blocks of one shard in flight."""


class ShardUploader:
    """One container of one account."""

    def __init__(self, service: BlobServiceClient, container: str) -> None:
        self._service = service
        self._container: ContainerClient = service.get_container_client(container)

    @classmethod
    def connected(cls, connection: str, container: str) -> ShardUploader:
        """Open an account by connection string. Raises CliError where it is none."""
        try:
            service = BlobServiceClient.from_connection_string(connection, max_block_size=MAX_BLOCK_BYTES)
        except ValueError as error:
            raise CliError(f"DataStorage is not a storage connection string: {error}") from error
        return cls(service, container)

    @classmethod
    def signed_in(cls, account_url: str, container: str) -> ShardUploader:
        """Open an account with whatever identity this machine has."""
        from azure.identity import DefaultAzureCredential

        try:
            service = BlobServiceClient(account_url, DefaultAzureCredential(), max_block_size=MAX_BLOCK_BYTES)
        except ValueError as error:
            raise CliError(f"{account_url!r} is not the address of a storage account: {error}") from error
        return cls(service, container)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._container.close()
        self._service.close()

    def has(self, prefix: str) -> bool:
        """Whether there is any blob below a prefix. Raises CliError where the account says no."""
        try:
            return next(iter(self._container.list_blob_names(name_starts_with=prefix)), None) is not None
        except AzureError as error:
            raise CliError(f"{self._service.url} cannot be listed: {_first_line(error)}") from error

    def upload(self, file: Path, path: str, step: Step, *, overwrite: bool) -> None:
        """Write one blob, telling `step` about bytes as they go.

        Raises CliError where it exists (and may not be replaced), cannot be read, or the account says no.
        """
        options: dict[str, Any] = {"max_concurrency": CONCURRENCY, "progress_hook": _differences(step)}
        try:
            with file.open("rb") as content:
                self._container.upload_blob(path, content, overwrite=overwrite, **options)
        except OSError as error:
            raise CliError(f"{file} cannot be read: {error}") from error
        except ResourceExistsError as error:
            raise CliError(f"{path} is there already; --overwrite replaces it, or choose another version.") from error
        except AzureError as error:
            raise CliError(f"{path} was not uploaded to {self._service.url}: {_first_line(error)}") from error


def _differences(step: Step) -> Callable[[int, int | None], None]:
    """Turn the SDK's "so many bytes in all" into our "so many bytes more"."""
    done = 0

    def tell(current: int, _total: int | None) -> None:
        nonlocal done
        step(current - done)
        done = current

    return tell


def _first_line(error: AzureError) -> str:
    return str(error).splitlines()[0] if str(error) else repr(error)
