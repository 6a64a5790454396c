"""Small documents in a container of the host's account: manifests, checkpoints and what a job wrote."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from function_app.adapters.connections import StorageConnection
from function_app.adapters.failures import storage_errors
from function_app.domain.errors import DocumentTooLargeError

if TYPE_CHECKING:
    from azure.storage.blob import ContainerClient

_RANGE_NOT_SATISFIABLE = 416


class BlobDocumentStore:
    """Implements DocumentStore. The first write creates the container where it is missing."""

    def __init__(self, connection: StorageConnection, container: str) -> None:
        self._connection = connection
        self._container_name = container

    def write_once(self, path: str, content: bytes) -> bool:
        """See DocumentStore. One operation: If-None-Match lets one writer win."""
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
        """See DocumentStore. One operation, and never more than one byte beyond the limit."""
        with storage_errors(f"read {self._container_name}/{path}"):
            content = self._download(path, max_bytes + 1)
        if content is not None:
            check_size(path, len(content), max_bytes)
        return content

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
        except ResourceExistsError:
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
            return b""  # an empty blob has no byte 0 to read

    def _create_container(self) -> None:
        from azure.core.exceptions import ResourceExistsError

        with contextlib.suppress(ResourceExistsError):  # another handler created it first
            self._container.create_container()

    @property
    def _container(self) -> ContainerClient:
        return self._connection.blob_service.get_container_client(self._container_name)


def check_size(path: str, size_bytes: int, max_bytes: int) -> None:
    """Raise DocumentTooLargeError where a document exceeds what its reader allows."""
    if size_bytes > max_bytes:
        raise DocumentTooLargeError(f"document {path} has more than {max_bytes} bytes")
