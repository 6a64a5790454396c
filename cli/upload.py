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

MAX_BLOCK_BYTES = 8 << 20
CONCURRENCY = 4
"""Blocks of one shard that are uploaded at the same time."""


@click.command(epilog="Example: landfall upload shards --to digits/2026-11-20")
@click.argument("sources", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--to", "target", required=True, type=DATASET_VERSION, help="Dataset and version to upload as.")
@click.option(
    "--container",
    envvar="LANDFALL_DATA_CONTAINER",
    show_envvar=True,
    default="datasets",
    help="Container of the data account.",
)
@click.option(
    "--account-url",
    help="URL of the data account, such as https://NAME.blob.core.windows.net (default: see above).",
)
@click.option("--overwrite", is_flag=True, help="Replace shards that exist already.")
def upload(
    sources: tuple[Path, ...], target: tuple[str, str], container: str, account_url: str | None, *, overwrite: bool
) -> None:
    """Upload shards (files, or folders of files) as a dataset version.

    The data account is the first of these: --account-url (signed in by `az login` or a managed identity), the
    environment variable DataStorage (a connection string), DataStorage__blobServiceUri (a URL), or the local twin
    of this clone.
    """
    shards = find_shards(sources)
    with open_uploader(container, account_url) as uploader:
        upload_all(uploader, shards, target, overwrite=overwrite)
    click.echo(f"Uploaded {len(shards)} shards as {'/'.join(target)}. Next: landfall status {'/'.join(target)}")


def find_shards(sources: tuple[Path, ...]) -> list[Path]:
    """Return the files to upload, folders in order of name. Raises CliError for no file and for two of one name."""
    files = [f for s in sources for f in (sorted(s.iterdir()) if s.is_dir() else [s])]
    shards = [f for f in files if f.is_file() and not f.name.startswith(".")]
    if not shards:
        raise CliError(f"{', '.join(str(s) for s in sources)}: there is no file to upload.")
    names = [f.name for f in shards]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise CliError(
            f"Several files have the same name: {', '.join(twice)}. One would replace the other: rename one."
        )
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
    """Return an uploader to the data account. Raises CliError where none is named and no twin runs."""
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
        raise CliError("No storage account: pass --account-url, or start a local twin with `landfall up`.")
    return ShardUploader.connected(twin.data_connection, container)


class ShardUploader:
    """Uploads shards to one container."""

    def __init__(self, service: BlobServiceClient, container: str) -> None:
        self._service = service
        self._container: ContainerClient = service.get_container_client(container)

    @classmethod
    def connected(cls, connection: str, container: str) -> ShardUploader:
        """Open an account by connection string. Raises CliError for a malformed one."""
        try:
            service = BlobServiceClient.from_connection_string(connection, max_block_size=MAX_BLOCK_BYTES)
        except ValueError as error:
            raise CliError(f"DataStorage is not a storage connection string: {error}") from error
        return cls(service, container)

    @classmethod
    def signed_in(cls, account_url: str, container: str) -> ShardUploader:
        """Open an account with the identity of this machine, as by `az login`."""
        from azure.identity import DefaultAzureCredential

        try:
            service = BlobServiceClient(account_url, DefaultAzureCredential(), max_block_size=MAX_BLOCK_BYTES)
        except ValueError as error:
            raise CliError(f"{account_url!r} is not the URL of a storage account: {error}") from error
        return cls(service, container)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._container.close()
        self._service.close()

    def has(self, prefix: str) -> bool:
        """Return whether a blob exists below a prefix. Raises CliError where the account refuses."""
        try:
            return next(iter(self._container.list_blob_names(name_starts_with=prefix)), None) is not None
        except AzureError as error:
            raise CliError(f"{self._service.url} cannot be listed: {_first_line(error)}") from error

    def upload(self, file: Path, path: str, step: Step, *, overwrite: bool) -> None:
        """Upload one file, calling `step` with the bytes done.

        Raises CliError where the blob exists and must stay, the file cannot be read, or the account refuses.
        """
        options: dict[str, Any] = {"max_concurrency": CONCURRENCY, "progress_hook": _differences(step)}
        try:
            with file.open("rb") as content:
                self._container.upload_blob(path, content, overwrite=overwrite, **options)
        except OSError as error:
            raise CliError(f"{file}: cannot be read: {error}") from error
        except ResourceExistsError as error:
            raise CliError(f"{path} exists already: pass --overwrite, or choose another version.") from error
        except AzureError as error:
            raise CliError(f"{path} was not uploaded to {self._service.url}: {_first_line(error)}") from error


def _differences(step: Step) -> Callable[[int, int | None], None]:
    """Turn the SDK's hook, which gets all bytes so far, into one that gets the bytes since the last call."""
    done = 0

    def report(current: int, _total: int | None) -> None:
        nonlocal done
        step(current - done)
        done = current

    return report


def _first_line(error: AzureError) -> str:
    return str(error).splitlines()[0] if str(error) else repr(error)
