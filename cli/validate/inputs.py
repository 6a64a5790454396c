"""The shards to validate: files, folders of them, and blobs by URL."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import click

from shard_validation import (
    COUNT_FILES,
    ShardSource,
    SourceForbiddenError,
    SourceGoneError,
    SourceUnavailableError,
    check_name,
)
from shared.safe_text import mask_secrets, public_url, shown

if TYPE_CHECKING:
    from function_app.config.layouts import Layout

EMULATORS = ("127.0.0.1", "localhost")
"""Hosts on which an account's name is a part of the path."""
_SCHEMES = ("https://", "http://")
_EXAMPLE = "https://ACCOUNT.blob.core.windows.net/CONTAINER/PATH"
_CONNECTION_SETTING = "DataStorage"
"""Connection string of the data account, as in the function app."""
RETRY_BACKOFF_S = 1
"""Pause between tries: a person is waiting."""
_FORBIDDEN = frozenset({401, 403, 409})
"""409: public access is switched off for the account."""


@dataclass(frozen=True, kw_only=True)
class ShardInput:
    """One shard to validate."""

    label: str
    """As it is printed: the path as given, or the URL without its query, which may hold a signature."""
    location: str
    """The path, or the whole URL."""
    is_url: bool = False
    path: str = ""
    """Path below the folder argument, if a version may have folders."""

    @property
    def name(self) -> str:
        """The file name, with the folders that a version may have."""
        if self.path:
            return self.path
        return unquote(urlsplit(self.location).path).rpartition("/")[2] if self.is_url else Path(self.location).name


def find_inputs(
    arguments: Sequence[str], layout: Layout | None = None, *, may_be_empty: bool = False
) -> list[ShardInput]:
    """Return the shards in the order of the arguments, folders in order of name. Raises click.UsageError.

    ``layout`` is that of the pipeline, if one was passed.
    """
    inputs = [found for argument in arguments for found in _find(argument, layout)]
    if not inputs and not may_be_empty:
        has_any_names = layout is not None and layout.has_any_names
        wanted = "that can be a shard" if has_any_names else "named like train-00000-of-00008.tfrecord or .parquet"
        raise click.UsageError(f"{', '.join(map(shown, arguments))}: there is no file {wanted}.")
    return inputs


def find_counts(arguments: Sequence[str]) -> Path | None:
    """Return the file next to the shards that states their record counts; None if there is none."""
    folders = dict.fromkeys(
        path if path.is_dir() else path.parent for path in (Path(a) for a in arguments if "://" not in a)
    )
    return next((f / name for f in folders for name in COUNT_FILES if (f / name).is_file()), None)


def _find(argument: str, layout: Layout | None) -> list[ShardInput]:
    if "://" in argument:
        return [_blob(argument)]
    if not argument:
        raise click.UsageError("An argument is empty: pass a file, a folder or the URL of a blob.")
    path = Path(argument)
    try:
        if path.is_dir() and layout is not None and layout.has_any_names:
            return list(_below(path, layout))
        if path.is_dir():
            return [ShardInput(label=str(p), location=str(p)) for p in sorted(path.iterdir()) if _is_shard(p)]
        if not stat.S_ISREG(path.stat().st_mode):
            raise click.UsageError(f"{shown(argument)}: is a pipe or a device, not a file or a folder.")
    except FileNotFoundError as error:
        raise click.UsageError(f"{shown(argument)}: there is no such file or folder.") from error
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise click.UsageError(f"{shown(argument)}: cannot be opened: {reason}.") from error
    return [ShardInput(label=argument, location=argument)]


def _below(folder: Path, layout: Layout) -> Iterator[ShardInput]:
    """Yield all files below a folder, except for those that the function app ignores."""
    for file in sorted(folder.rglob("*")):
        path = file.relative_to(folder).as_posix()
        if not file.is_dir() and not is_beside(path, layout):
            yield ShardInput(label=str(file), location=str(file), path=path)


def is_beside(path: str, layout: Layout) -> bool:
    """Return whether the function app takes a file of a version for something else than a shard."""
    is_no_shard = layout.is_left_behind(path) or layout.is_marker(path) or layout.is_text(path)
    return is_no_shard or path in COUNT_FILES


def _blob(url: str) -> ShardInput:
    label = public_url(url)
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise click.UsageError(f"{shown(label)}: is not a URL: {error}.") from error
    if f"{parts.scheme}://" not in _SCHEMES:
        raise click.UsageError(f"{shown(label)}: a blob's URL must begin with https://.")
    if not parts.hostname or not parts.path.strip("/").partition("/")[2]:
        raise click.UsageError(f"{shown(label)}: a blob's URL must look like {_EXAMPLE}.")
    return ShardInput(label=label, location=url, is_url=True)


def _is_shard(path: Path) -> bool:
    """Return whether a file in a folder is to be validated. Its name decides: a folder may hold other files.

    Broken links and pipes count, so that they are reported instead of missed. Hidden files do not: `pack` names
    unfinished shards so, and an upload leaves them out.
    """
    looks_like_shard = ".tfrecord" in path.name or path.suffix == ".parquet"
    is_hidden = path.name.startswith(".")
    return not is_hidden and not path.is_dir() and (looks_like_shard or check_name(path.name) is None)


def open_url(url: str) -> ShardSource:
    """Return a source pinned to the blob's present content. Raises a SourceError.

    Without a signature in the URL, DataStorage opens the blob if it names the same account, otherwise the identity of
    this machine.
    """
    from azure.core.exceptions import AzureError, HttpResponseError, ResourceNotFoundError

    from function_app.adapters.blobs import BlobShardSource
    from function_app.domain.records import BlobFacts, normalise_etag

    label = public_url(url)
    try:
        blob = _blob_client(url)
        properties = blob.get_blob_properties()
    except ResourceNotFoundError as error:
        raise SourceGoneError(f"{label}: there is no such blob; the URL of a folder ends with /") from error
    except HttpResponseError as error:
        if error.status_code in _FORBIDDEN:
            raise SourceForbiddenError(f"{label}: storage refuses access ({error.status_code})") from error
        raise SourceUnavailableError(f"{label}: storage answered {error.status_code}") from error
    except (AzureError, ValueError) as error:
        raise SourceUnavailableError(f"{label}: the blob cannot be opened: {mask_secrets(str(error))}") from error
    facts = BlobFacts(
        path=blob.blob_name,
        etag=normalise_etag(properties.etag),
        size_bytes=properties.size,
        last_modified=properties.last_modified,
    )
    return BlobShardSource(blob, facts)


def open_folder(url: str) -> tuple[Any, str]:
    """Return the client of the container of a folder, by its URL, and the beginning of its blobs' names.

    Raises ValueError where the URL names none.
    """
    from azure.storage.blob import BlobClient, ContainerClient

    address = BlobClient.from_blob_url(url)
    service = _service_of(url)
    if service is not None:
        return service.get_container_client(address.container_name), f"{address.blob_name.rstrip('/')}/"
    before, _, query = url.partition("?")
    container = before[: before.index(f"/{address.container_name}/") + len(address.container_name) + 1]
    signed = f"{container}?{query}" if query else container
    client = ContainerClient.from_container_url(signed, credential=_credential(url), **_client_options())
    return client, f"{address.blob_name.rstrip('/')}/"


def _blob_client(url: str) -> Any:
    from azure.storage.blob import BlobClient

    address = BlobClient.from_blob_url(url)
    service = _service_of(url)
    if service is not None:
        return service.get_blob_client(address.container_name, address.blob_name)
    return BlobClient.from_blob_url(url, credential=_credential(url), **_client_options())


def _client_options() -> dict[str, Any]:
    from azure.storage.blob import LinearRetry

    return {
        "retry_policy": LinearRetry(backoff=RETRY_BACKOFF_S, retry_total=3, random_jitter_range=0),
        "connection_timeout": 5,
        "read_timeout": 30,
    }


def _service_of(url: str) -> Any:
    """Return the account of DataStorage where an unsigned URL names it; otherwise None."""
    from azure.storage.blob import BlobServiceClient

    connection = os.environ.get(_CONNECTION_SETTING, "")
    if not connection or urlsplit(url).query:
        return None
    service = BlobServiceClient.from_connection_string(connection, **_client_options())
    return service if url.startswith(service.url.rstrip("/") + "/") else None


def _credential(url: str) -> Any:
    """Return the identity of this machine for an unsigned Azure URL; None for any other server."""
    from function_app.adapters.connections import storage_suffix

    parts, suffix = urlsplit(url), storage_suffix(os.environ)
    if "sig=" in parts.query or parts.scheme != "https" or not (parts.hostname or "").endswith(f".{suffix}"):
        return None
    from azure.identity import DefaultAzureCredential

    return DefaultAzureCredential()
