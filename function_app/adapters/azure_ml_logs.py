"""The end of a job's log: at its signed address, or in the workspace's storage as the app's identity.

A workspace whose storage takes no keys may give addresses that cannot be read, or none. Then the log is read where
Azure ML keeps it: ``ExperimentRun/dcid.<job>/user_logs/…`` of the container of the workspace's artifacts.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from function_app.adapters.connections import client_options, credential
from function_app.domain.errors import LogUnreadableError

if TYPE_CHECKING:
    from azure.ai.ml import MLClient
    from azure.storage.blob import BlobClient, ContainerClient

ARTIFACTS = "workspaceartifactstore"
"""The datastore that each workspace has for its artifacts."""
ROOT_LOG = re.compile(r"user_logs/std_log(?:_process_0+)?\.txt|user_logs/std_log\D*0*\.txt")
"""The logs of rank 0; a job with one process has only ``std_log.txt``."""
MAX_LOGS = 1000
"""Log files that are listed: the root's is among the first by name."""
_NO_ADDRESS = frozenset({401, 403, 404, 409})
"""Statuses of an address without a signature: storage without keys, or that says nothing to strangers."""


class JobLogs:
    """The logs of a workspace. ``blob_uri`` is its storage's address; None for the one that Azure ML names."""

    def __init__(self, *, client_id: str | None, blob_uri: str | None = None) -> None:
        self._client_id = client_id
        self._blob_uri = blob_uri

    def tail(self, client: MLClient, name: str, *, max_bytes: int) -> str | None:
        """Return the end of the root's log, None where there is none. Raises LogUnreadableError."""
        from azure.core.exceptions import HttpResponseError

        addresses: dict[str, str] = getattr(run_details(client, name), "log_files", None) or {}
        root = _root_log(addresses)
        if root is not None:
            try:
                return _tail_at(addresses[root], max_bytes)
            except HttpResponseError as error:
                if error.status_code not in _NO_ADDRESS:
                    raise
        return self._from_storage(client, name, max_bytes)

    def _from_storage(self, client: MLClient, name: str, max_bytes: int) -> str | None:
        from azure.core.exceptions import HttpResponseError, ResourceNotFoundError

        folder = f"ExperimentRun/dcid.{name}/"
        with self._container(client) as container:
            try:
                names = container.list_blob_names(name_starts_with=f"{folder}user_logs/")
                root = _root_log(each.removeprefix(folder) for each in itertools.islice(names, MAX_LOGS))
                return None if root is None else _tail(container.get_blob_client(folder + root), max_bytes)
            except ResourceNotFoundError:
                return None
            except HttpResponseError as error:
                if error.status_code not in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
                    raise
                raise LogUnreadableError(
                    f"Azure ML gives no address at which it can be read, and storage refuses the app's identity "
                    f"({error.status_code}): give it the role Storage Blob Data Reader on container "
                    f"{container.container_name} of account {container.account_name}"
                ) from error

    def _container(self, client: MLClient) -> ContainerClient:
        from azure.storage.blob import ContainerClient, ExponentialRetry

        store: Any = client.datastores.get(ARTIFACTS)
        try:
            return ContainerClient(
                self._blob_uri or f"https://{store.account_name}.blob.{store.endpoint}",
                store.container_name,
                credential=credential(self._client_id),
                **client_options(ExponentialRetry, retry_total=2),
            )
        except (AttributeError, ValueError) as error:  # no blob datastore, or an address without https
            raise LogUnreadableError(
                f"Azure ML gives no address at which it can be read, and datastore {ARTIFACTS} cannot be opened as "
                f"blobs: {error}. Set LANDFALL_WORKSPACE_BLOB_URI to the https address of the workspace's storage"
            ) from error


def run_details(client: MLClient, name: str) -> Any:
    """Return the run history's details of a job. The SDK has no public call for them."""
    return client.jobs._runs_operations.get_run_details(name)  # noqa: SLF001 (a contract test covers the call)


def _root_log(names: Iterable[str]) -> str | None:
    """Return the root's log, otherwise the first log that the user's code wrote."""
    known = sorted(names)
    roots = [name for name in known if ROOT_LOG.fullmatch(name)]
    others = [name for name in known if name.startswith("user_logs/")]
    return next(iter([*roots, *others]), None)


def _tail_at(url: str, max_bytes: int) -> str:
    """Read a blob by its signed address."""
    from azure.storage.blob import BlobClient, ExponentialRetry

    with BlobClient.from_blob_url(url, **client_options(ExponentialRetry, retry_total=2)) as blob:
        return _tail(blob, max_bytes)


def _tail(blob: BlobClient, max_bytes: int) -> str:
    size_bytes = blob.get_blob_properties().size
    if not size_bytes:
        return ""
    start = max(0, size_bytes - max_bytes)
    content: bytes = blob.download_blob(start, max_bytes).readall()
    return content.decode(errors="replace")
