"""Copies of rejected shards, in a container of the data account; made by the service, not through this process."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from function_app.adapters.connections import StorageConnection
from function_app.adapters.failures import storage_errors
from function_app.domain.records import BlobFacts, normalise_etag
from shard_validation import SourceChangedError, SourceGoneError

if TYPE_CHECKING:
    from azure.storage.blob import BlobClient, BlobServiceClient

_CONTAINER_NOT_FOUND = "ContainerNotFound"


class BlobQuarantine:
    """Implements Quarantine by Copy Blob within the account: no byte comes here, whatever the size.

    The identity needs to write in the account. A copy of many gigabytes may end after the call; it is the service's
    then, and fails where the source is overwritten meanwhile.
    """

    def __init__(self, connection: StorageConnection, source_container: str) -> None:
        self._connection = connection
        self._source_container = source_container

    def copy(self, facts: BlobFacts, container: str, path: str) -> bool:
        """See Quarantine. Two operations."""
        from azure.core.exceptions import ResourceExistsError, ResourceModifiedError, ResourceNotFoundError

        source = self._service.get_blob_client(self._source_container, facts.path)
        with storage_errors(f"copy {self._source_container}/{facts.path} to {container}"):
            try:
                self._copy(source, _pinned(source, facts), container, path)
            except ResourceExistsError:
                return False
            except ResourceModifiedError as error:
                raise SourceChangedError(f"{facts.path}: the blob was overwritten before it was copied") from error
            except ResourceNotFoundError as error:
                raise SourceGoneError(f"{facts.path}: there should be a blob, there is none") from error
        return True

    def note(self, container: str, path: str, content: bytes) -> None:
        """See Quarantine. One operation."""
        from azure.storage.blob import ContentSettings

        settings = ContentSettings(content_type="application/json")
        with storage_errors(f"write {container}/{path}"):
            client = self._service.get_blob_client(container, path)
            client.upload_blob(content, overwrite=True, content_settings=settings)

    def _copy(self, source: BlobClient, etag: str, container: str, path: str) -> None:
        from azure.core.exceptions import ResourceNotFoundError

        try:
            _start_copy(source, etag, self._service.get_blob_client(container, path))
        except ResourceNotFoundError as error:
            if getattr(error, "error_code", None) != _CONTAINER_NOT_FOUND:
                raise
            self._create(container)
            _start_copy(source, etag, self._service.get_blob_client(container, path))

    def _create(self, container: str) -> None:
        from azure.core.exceptions import ResourceExistsError

        with contextlib.suppress(ResourceExistsError):  # somebody else's first copy was quicker
            self._service.create_container(container)

    @property
    def _service(self) -> BlobServiceClient:
        return self._connection.blob_service


def _pinned(source: BlobClient, facts: BlobFacts) -> str:
    """Return the ETag as the service writes it. Raises SourceChangedError where it is not the one in ``facts``."""
    etag: str = source.get_blob_properties().etag
    if normalise_etag(etag) != facts.etag:
        raise SourceChangedError(
            f"{facts.path}: should be the content with ETag {facts.etag}, is {normalise_etag(etag)} now"
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
