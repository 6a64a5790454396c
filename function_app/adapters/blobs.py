"""Blobs: shards that are read at a pinned ETag, copies of rejected shards, and small documents."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from function_app.adapters.blob_listing import list_blobs
from function_app.adapters.connections import StorageConnection
from function_app.adapters.storage_errors import StorageRefusedError, storage_errors
from function_app.domain.errors import DocumentTooLargeError
from function_app.domain.records import BlobFacts, normalise_etag
from function_app.ports import passed_over
from shard_validation import (
    HeldSource,
    ShardSource,
    SourceChangedError,
    SourceError,
    SourceForbiddenError,
    SourceGoneError,
    SourceUnavailableError,
)

if TYPE_CHECKING:
    from azure.storage.blob import BlobClient, BlobProperties, BlobServiceClient, ContainerClient

_GONE = 404
_RANGE_NOT_SATISFIABLE = 416
_CHANGED = frozenset({412, 416})
"""412: the ETag condition failed; 416: the range is beyond the end of the current content."""
_FORBIDDEN = frozenset({401, 403})
_CONTAINER_NOT_FOUND = "ContainerNotFound"
_EXISTS = ("BlobAlreadyExists", "PendingCopyOperation")
"""Conflicts that mean that a blob exists, or is already being copied. The SDK raises ResourceExistsError for every
409, for example while a container is being deleted."""


class BlobShardStore:
    """Implements ShardStore over one container. Blobs are addressed by name, because names may have any character."""

    def __init__(self, connection: StorageConnection, container: str) -> None:
        self._connection = connection
        self._container_name = container

    def facts(self, path: str, *, content_up_to: int = 0) -> BlobFacts | None:
        """See ShardStore. One or two operations. A missing container is an error, not a missing blob."""
        from azure.core.exceptions import ResourceNotFoundError

        with storage_errors(f"look at {self._container_name}/{path}"):
            blob = self._container.get_blob_client(path)
            try:
                held = _with_content(path, blob, content_up_to) if content_up_to else None
                return held or _facts(path, blob.get_blob_properties())
            except ResourceNotFoundError as error:
                if getattr(error, "error_code", None) == _CONTAINER_NOT_FOUND:
                    raise
                return None

    def open(self, facts: BlobFacts) -> ShardSource:
        """See ShardStore. No operation: the first read shows whether the blob still exists."""
        if facts.content is not None:
            return held_content(facts)
        return BlobShardSource(self._container.get_blob_client(facts.path), facts)

    def list(self, prefix: str, *, unlisted: Callable[[str], object] = passed_over) -> Iterator[BlobFacts]:
        """See ShardStore. One operation for every 5,000 blobs."""
        with storage_errors(f"list {self._container_name}/{prefix}*"):
            for properties in list_blobs(self._container, prefix, unlisted):
                yield _facts(properties.name, properties)

    @property
    def _container(self) -> ContainerClient:
        return self._connection.blob_service.get_container_client(self._container_name)


def held_content(facts: BlobFacts) -> HeldSource:
    """Return the content in ``facts`` as a source, which reads nothing from storage."""
    return HeldSource(facts.path.rpartition("/")[2], facts.content or b"")


class BlobShardSource:
    """Implements ShardSource. Every read is one ranged request, and every response must have the pinned ETag."""

    def __init__(self, blob: BlobClient, facts: BlobFacts) -> None:
        self.name = facts.path.rpartition("/")[2]
        self.size_bytes = facts.size_bytes
        self._blob = blob
        self._facts = facts
        self._service_etag: str | None = None
        """As the service writes it, taken from the first response, because the service rejects the normalised form.
        """

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes. Raises a SourceError; may be called from several threads."""
        if length == 0:
            return b""
        content, etag = self._download(offset, length)
        if normalise_etag(etag) != self._facts.etag:
            expected, seen = self._facts.etag, normalise_etag(etag)
            raise SourceChangedError(
                f"{self._facts.path}: the blob was overwritten: its ETag was {expected}, now it is {seen}"
            )
        self._service_etag = etag
        if len(content) != length:
            raise SourceUnavailableError(
                f"{self._facts.path}: asked for {length} bytes from byte {offset}, got {len(content)}"
            )
        return content

    def _download(self, offset: int, length: int) -> tuple[bytes, str]:
        from azure.core.exceptions import AzureError, HttpResponseError

        path = self._facts.path
        try:
            stream = self._blob.download_blob(offset, length, **self._condition())
            return stream.readall(), stream.properties.etag or ""
        except HttpResponseError as error:
            raise self._refusal(error.status_code) from error
        except AzureError as error:
            raise SourceUnavailableError(f"{path}: storage did not answer: {type(error).__name__}") from error

    def _refusal(self, status: int | None) -> SourceError:
        path = self._facts.path
        if status in _FORBIDDEN:
            return SourceForbiddenError(
                f"{path}: reading the blob is not allowed ({status}); check the role assignments"
            )
        if status == _GONE or (status in _CHANGED and not self._is_there()):
            return SourceGoneError(f"{path}: the blob is gone")
        if status in _CHANGED:
            return SourceChangedError(f"{path}: the blob was overwritten while it was read")
        return SourceUnavailableError(f"{path}: storage answered {status}")

    def _is_there(self) -> bool:
        """Whether the blob exists. A deleted blob may also fail the condition (Azurite). No response means yes."""
        from azure.core.exceptions import AzureError

        try:
            return self._blob.exists()
        except AzureError:
            return True

    def _condition(self) -> dict[str, Any]:
        from azure.core import MatchConditions

        if self._service_etag is None:
            return {}
        return {"etag": self._service_etag, "match_condition": MatchConditions.IfNotModified}


def _facts(path: str, properties: BlobProperties) -> BlobFacts:
    return BlobFacts(
        path=path,
        etag=normalise_etag(properties.etag),
        size_bytes=properties.size,
        last_modified=properties.last_modified,
    )


def _with_content(path: str, blob: BlobClient, max_bytes: int) -> BlobFacts | None:
    """Return the facts of a small blob with its content; None if it is larger or empty."""
    from azure.core.exceptions import HttpResponseError

    try:
        stream = blob.download_blob(0, max_bytes + 1)  # detects a larger blob
    except HttpResponseError as error:
        if error.status_code == _RANGE_NOT_SATISFIABLE:
            return None
        raise
    content = stream.readall()
    return replace(_facts(path, stream.properties), content=content) if len(content) <= max_bytes else None


class BlobRejectedCopies:
    """Implements RejectedCopies with Copy Blob within the account, so that no content passes through the app.

    The identity needs write access to the container. The container is not created here, because that requires a role
    on the whole account. The service may finish a copy of many gigabytes after the call; the copy fails if the source
    is overwritten in the meantime.
    """

    def __init__(self, connection: StorageConnection, source_container: str) -> None:
        self._connection = connection
        self._source_container = source_container

    def copy(self, facts: BlobFacts, container: str, path: str) -> bool:
        """See RejectedCopies. Two operations."""
        from azure.core.exceptions import ResourceExistsError, ResourceModifiedError, ResourceNotFoundError

        source = self._service.get_blob_client(self._source_container, facts.path)
        with storage_errors(f"copy {self._source_container}/{facts.path} to {container}"):
            try:
                _start_copy(source, _pinned(source, facts), self._service.get_blob_client(container, path))
            except ResourceExistsError as error:
                if getattr(error, "error_code", None) not in _EXISTS:
                    raise
                return False
            except ResourceModifiedError as error:
                raise SourceChangedError(f"{facts.path}: the blob was overwritten before it was copied") from error
            except ResourceNotFoundError as error:
                if getattr(error, "error_code", None) == _CONTAINER_NOT_FOUND:
                    raise StorageRefusedError(no_container(container)) from error
                raise SourceGoneError(f"{facts.path}: the blob is gone") from error
        return True

    def note(self, container: str, path: str, content: bytes) -> None:
        """See RejectedCopies. One operation."""
        from azure.storage.blob import ContentSettings

        settings = ContentSettings(content_type="application/json")
        with storage_errors(f"write {container}/{path}"):
            client = self._service.get_blob_client(container, path)
            client.upload_blob(content, overwrite=True, content_settings=settings)

    @property
    def _service(self) -> BlobServiceClient:
        return self._connection.blob_service


def no_container(container: str) -> str:
    """Return the fix for a missing container for rejected copies."""
    return (
        f"container {container} does not exist in the data account; create it, and give the app's identity the role "
        "Storage Blob Data Contributor on it"
    )


def _pinned(source: BlobClient, facts: BlobFacts) -> str:
    """Return the ETag in the service's format. Raises SourceChangedError if it differs from ``facts``."""
    etag: str = source.get_blob_properties().etag
    if normalise_etag(etag) != facts.etag:
        raise SourceChangedError(
            f"{facts.path}: the blob was overwritten: its ETag was {facts.etag}, now it is {normalise_etag(etag)}"
        )
    return etag


def _start_copy(source: BlobClient, etag: str, target: BlobClient) -> None:
    from azure.core import MatchConditions

    target.start_copy_from_url(
        source.url,
        source_etag=etag,
        source_match_condition=MatchConditions.IfNotModified,
        match_condition=MatchConditions.IfMissing,
    )


class BlobDocumentStore:
    """Implements DocumentStore. The first write creates a missing container."""

    def __init__(self, connection: StorageConnection, container: str) -> None:
        self._connection = connection
        self._container_name = container

    def write_once(self, path: str, content: bytes) -> bool:
        """See DocumentStore. One operation with If-None-Match, so that only one writer wins."""
        return self._write(path, content, overwrite=False)

    def write(self, path: str, content: bytes) -> None:
        """See DocumentStore. One operation."""
        self._write(path, content, overwrite=True)

    def delete(self, path: str) -> None:
        """See DocumentStore. One operation."""
        from azure.core.exceptions import ResourceNotFoundError

        with storage_errors(f"delete {self._container_name}/{path}"), contextlib.suppress(ResourceNotFoundError):
            self._container.delete_blob(path)

    def read(self, path: str, *, max_bytes: int) -> bytes | None:
        """See DocumentStore. One operation, which reads at most one byte more than the limit."""
        with storage_errors(f"read {self._container_name}/{path}"):
            content = self._download(path, max_bytes + 1)
        if content is not None:
            check_size(path, len(content), max_bytes)
        return content

    def has_any(self, folder: str) -> bool:
        """See DocumentStore. One operation."""
        from azure.core.exceptions import ResourceNotFoundError

        with storage_errors(f"list {self._container_name}/{folder}"):
            listed = self._container.list_blobs(name_starts_with=f"{folder.rstrip('/')}/", results_per_page=1)
            try:
                return next(iter(listed), None) is not None
            except ResourceNotFoundError:  # no container, so nothing in it
                return False

    def names(self, folder: str, *, most: int) -> list[str]:
        """See DocumentStore. One operation for every 5,000 names; markers of folders are omitted."""
        from azure.core.exceptions import ResourceNotFoundError

        prefix = f"{folder.rstrip('/')}/"
        with storage_errors(f"list {self._container_name}/{folder}"):
            listed = self._container.list_blobs(name_starts_with=prefix, include=["metadata"])
            files = (blob for blob in listed if (blob.metadata or {}).get("hdi_isfolder") != "true")
            try:
                return [str(blob.name).removeprefix(prefix) for blob in islice(files, most)]
            except ResourceNotFoundError:  # no container, so nothing in it
                return []

    def _write(self, path: str, content: bytes, *, overwrite: bool) -> bool:
        from azure.core.exceptions import ResourceNotFoundError

        with storage_errors(f"write {self._container_name}/{path}"):
            try:
                return self._upload(path, content, overwrite=overwrite)
            except ResourceNotFoundError:
                self._create_container()
                return self._upload(path, content, overwrite=overwrite)

    def _upload(self, path: str, content: bytes, *, overwrite: bool) -> bool:
        from azure.core.exceptions import ResourceExistsError
        from azure.storage.blob import ContentSettings

        settings = ContentSettings(content_type="application/json") if path.endswith(".json") else None
        try:
            self._container.upload_blob(path, content, overwrite=overwrite, content_settings=settings)
        except ResourceExistsError as error:
            if getattr(error, "error_code", None) not in _EXISTS:
                raise
            return False
        return True

    def _download(self, path: str, max_bytes: int) -> bytes | None:
        from azure.core.exceptions import HttpResponseError, ResourceNotFoundError

        try:
            return self._container.get_blob_client(path).download_blob(0, max_bytes).readall()
        except ResourceNotFoundError:
            return None
        except HttpResponseError as error:
            if error.status_code != _RANGE_NOT_SATISFIABLE:
                raise
            return b""  # An empty blob has no byte 0.

    def _create_container(self) -> None:
        from azure.core.exceptions import ResourceExistsError

        with contextlib.suppress(ResourceExistsError):  # another handler created it first
            self._container.create_container()

    @property
    def _container(self) -> ContainerClient:
        return self._connection.blob_service.get_container_client(self._container_name)


def check_size(path: str, size_bytes: int, max_bytes: int) -> None:
    """Raise DocumentTooLargeError if a document exceeds its reader's limit."""
    if size_bytes > max_bytes:
        raise DocumentTooLargeError(f"document {path} has more than {max_bytes} bytes")
