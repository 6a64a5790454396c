"""What the run history knows of a job: how it ended, and the logs of its ranks.

Logs are read at signed addresses, or with the app's identity from the workspace's storage.
If a workspace's storage accepts no keys, the addresses may be missing or unreadable. Then the log is read from the
container of the workspace's artifacts, where Azure ML stores it as ``ExperimentRun/dcid.<job>/user_logs/…``.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from function_app.adapters.connections import client_options, credential
from function_app.domain.errors import LogUnreadableError
from function_app.domain.jobs import JobStatus, LogPart

if TYPE_CHECKING:
    from azure.ai.ml import MLClient
    from azure.storage.blob import BlobClient, ContainerClient

ARTIFACTS = "workspaceartifactstore"
"""The datastore that every workspace has for its artifacts."""
MAX_LOGS = 5000
"""Maximum number of log files that are listed; the root's is among the first by name."""
MAX_MESSAGE_CHARS = 2000
MAX_CODES = 5
_NO_ADDRESS = frozenset({401, 403, 404, 409})
"""Statuses for a URL without a signature: the storage account has no keys or no anonymous access."""


class JobLogs:
    """The logs of a workspace. ``blob_uri`` is the address of its storage; if None, Azure ML is asked for it."""

    def __init__(self, *, client_id: str | None, blob_uri: str | None = None) -> None:
        self._client_id = client_id
        self._blob_uri = blob_uri

    def tail(self, client: MLClient, name: str, *, max_bytes: int) -> str | None:
        """Return the end of the root's log, None if there is none. Raises LogUnreadableError."""
        part = self.part(client, name, rank=0, after=None, max_bytes=max_bytes)
        return None if part is None else part.content.decode(errors="replace")

    def part(self, client: MLClient, name: str, *, rank: int, after: int | None, max_bytes: int) -> LogPart | None:
        """Return bytes of a rank's log, see JobService.log_part. Raises LogUnreadableError."""
        from azure.core.exceptions import HttpResponseError

        addresses: dict[str, str] = getattr(run_details(client, name), "log_files", None) or {}
        log = log_of(rank, addresses)
        if log is not None:
            try:
                return _part_at(addresses[log], after, max_bytes)
            except HttpResponseError as error:
                if error.status_code not in _NO_ADDRESS:
                    raise
        return self._from_storage(client, name, rank, after, max_bytes)

    def _from_storage(
        self, client: MLClient, name: str, rank: int, after: int | None, max_bytes: int
    ) -> LogPart | None:
        from azure.core.exceptions import HttpResponseError, ResourceNotFoundError

        folder = f"ExperimentRun/dcid.{name}/"
        with self._container(client) as container:
            try:
                names = container.list_blob_names(name_starts_with=f"{folder}user_logs/")
                log = log_of(rank, (each.removeprefix(folder) for each in itertools.islice(names, MAX_LOGS)))
                return None if log is None else _part(container.get_blob_client(folder + log), after, max_bytes)
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
        except (AttributeError, ValueError) as error:  # not a blob datastore, or an address without https
            raise LogUnreadableError(
                f"Azure ML gives no address at which it can be read, and datastore {ARTIFACTS} cannot be opened as "
                f"blobs: {error}. Set LANDFALL_WORKSPACE_BLOB_URI to the https address of the workspace's storage"
            ) from error


def run_details(client: MLClient, name: str) -> Any:
    """Return the run history's details of a job. The SDK has no public call for them."""
    return client.jobs._runs_operations.get_run_details(name)  # noqa: SLF001 (a contract test covers the call)


def with_end(client: MLClient, status: JobStatus) -> JobStatus:
    """Return the status of a failed or canceled job with the service's message, its codes, and how long it ran.

    The status is unchanged if the run history, another service than that of the jobs, does not have the job.
    """
    from azure.core.exceptions import ResourceNotFoundError

    try:
        details = run_details(client, status.name)
    except ResourceNotFoundError:
        return status
    root = getattr(getattr(details, "error", None), "error", None)
    message = getattr(root, "message", None)
    start, end = (getattr(details, name, None) for name in ("start_time_utc", "end_time_utc"))
    return replace(
        status,
        error=" ".join(str(message).split())[:MAX_MESSAGE_CHARS] if message else None,
        error_code="/".join(_codes(root)) or None,
        ran_s=(end - start).total_seconds() if start and end else None,
    )


def _codes(error: Any) -> list[str]:
    codes: list[str] = []
    while error is not None and len(codes) < MAX_CODES:
        codes += [str(error.code)[:100]] if getattr(error, "code", None) else []
        error = getattr(error, "inner_error", None)
    return codes


def log_of(rank: int, names: Iterable[str]) -> str | None:
    """Return the name of a rank's log; for the root, the first log of the user's code if it has no own log.

    ``std_log_process_03.txt`` is the log of rank 3; a job with one process has only ``std_log.txt``.
    """
    known = sorted(names)
    own = re.compile(rf"user_logs/std_log\D*0*{rank or ''}\.txt")
    others = [name for name in known if name.startswith("user_logs/")] if rank == 0 else []
    return next(iter([*(name for name in known if own.fullmatch(name)), *others]), None)


def _part_at(url: str, after: int | None, max_bytes: int) -> LogPart:
    """Read a blob by its signed address."""
    from azure.storage.blob import BlobClient, ExponentialRetry

    with BlobClient.from_blob_url(url, **client_options(ExponentialRetry, retry_total=2)) as blob:
        return _part(blob, after, max_bytes)


def _part(blob: BlobClient, after: int | None, max_bytes: int) -> LogPart:
    size = blob.get_blob_properties().size
    start = max(0, size - max_bytes) if after is None else min(after, size)
    if start == size:
        return LogPart(content=b"", start=start, size=size)
    content: bytes = blob.download_blob(start, min(max_bytes, size - start)).readall()
    return LogPart(content=content, start=start, size=size)
