"""``landfall upload``."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import click
from azure.core.exceptions import AzureError, ResourceExistsError
from azure.storage.blob import BlobServiceClient, ContainerClient

from cli.errors import CliError
from cli.options import DATASET_VERSION, running_twin_of_this_clone
from cli.progress import Step, uploading_bar


@click.command()
@click.argument("sources", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--to", "target", required=True, type=DATASET_VERSION, help="<dataset>/<version> to upload as.")
@click.option("--container", envvar="LANDFALL_DATA_CONTAINER", default="datasets", show_default=True)
@click.option("--account-url", help="Address of the data account, such as https://NAME.blob.core.windows.net.")
@click.option("--overwrite", is_flag=True, help="Replace shards that are there already.")
def upload(
    sources: tuple[Path, ...], target: tuple[str, str], container: str, account_url: str | None, *, overwrite: bool
) -> None:
    """Upload shards (files, or folders of them) as a dataset version.

    Where to: --account-url (you are signed in by `az login` or a managed identity), else the environment's
    DataStorage (a connection string) or DataStorage__blobServiceUri, else the local twin of this clone.
    """
    shards = find_shards(sources)
    with open_uploader(container, account_url) as uploader:
        upload_all(uploader, shards, target, overwrite=overwrite)
    click.echo(f"Uploaded {len(shards)} shards as {'/'.join(target)}. See: landfall status {'/'.join(target)}")


def find_shards(sources: tuple[Path, ...]) -> list[Path]:
    """Return the files to upload, in order of name. Raises CliError where there are none, or two of one name."""
    files = [f for s in sources for f in (sorted(s.iterdir()) if s.is_dir() else [s])]
    shards = [f for f in files if f.is_file() and not f.name.startswith(".")]
    if not shards:
        raise CliError(f"There is no file to upload in {', '.join(str(s) for s in sources)}.")
    names = [f.name for f in shards]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise CliError(f"Several files have the same name: {', '.join(twice)}. A shard's name is its identity.")
    return shards


def upload_all(
    uploader: ShardUploader, shards: list[Path], target: tuple[str, str], *, overwrite: bool = False
) -> None:
    """Upload with a progress bar that counts bytes."""
    total = sum(shard.stat().st_size for shard in shards)
    with uploading_bar(f"uploading {len(shards)} shards", total_bytes=total) as step:
        for shard in shards:
            uploader.upload(shard, "/".join((*target, shard.name)), step, overwrite=overwrite)


def open_uploader(container: str, account_url: str | None) -> ShardUploader:
    """Return an uploader to what the user named. Raises CliError where nothing is named and no twin runs."""
    if account_url is not None:
        return ShardUploader.signed_in(account_url, container)
    connection = os.environ.get("DataStorage")  # noqa: SIM112 - the Functions convention writes it so
    service_uri = os.environ.get("DataStorage__blobServiceUri")  # noqa: SIM112
    if connection:
        return ShardUploader.connected(connection, container)
    if service_uri:
        return ShardUploader.signed_in(service_uri, container)
    twin = running_twin_of_this_clone()
    if twin is None:
        raise CliError("Nowhere to upload to: give --account-url, or start a local twin with `landfall up`.")
    return ShardUploader.connected(twin.data_connection, container)


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
