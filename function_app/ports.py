"""What the steps need of the world, besides the ledger. The adapters implement it; tests have doubles.

Every method may raise ServiceUnavailableError where trying again later may help.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from function_app.validation import ShardSource

from function_app.ledger import DatasetVersion, NotificationRecord


@dataclass(frozen=True, kw_only=True)
class BlobFacts:
    """A blob as it is now."""

    path: str
    """Within the data container: ``dataset/version/shard``."""
    etag: str
    """Normalised: no quotes, upper case."""
    size_bytes: int
    last_modified: datetime


class ShardStore(Protocol):
    """The data container: read only."""

    def facts(self, path: str) -> BlobFacts | None:
        """Return a blob's properties, None where it is gone."""
        ...

    def open(self, facts: BlobFacts) -> ShardSource:
        """Open a blob pinned to the ETag in ``facts``; reading raises SourceChangedError once it is overwritten."""
        ...

    def list(self, prefix: str) -> Iterator[BlobFacts]:
        """Yield the blobs below a prefix."""
        ...


class DocumentStore(Protocol):
    """Small documents in a container of the host's account: manifests, training reports."""

    def write_once(self, path: str, content: bytes) -> bool:
        """Write unless it exists; False where it did (its content is left as it was)."""
        ...

    def read(self, path: str, *, max_bytes: int) -> bytes | None:
        """Return a document, None where there is none. Raises LandfallError where it is larger than allowed."""
        ...


@dataclass(frozen=True, kw_only=True)
class TrainingRequest:
    """One message of the queue ``training-requested``."""

    dataset_version: DatasetVersion
    generation: int
    trigger: str
    """``closed``, ``http`` or ``cli``."""
    run_id: str | None = None
    """Where the caller has claimed a run already; None lets the step resolve it."""


class RequestQueue(Protocol):
    """The queue ``training-requested``."""

    def send(self, request: TrainingRequest) -> None:
        """Append a message."""
        ...


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """One Azure ML command job, fully resolved; every id is a full ARM id, every uri a full datastore uri."""

    name: str
    display_name: str
    experiment: str
    command: str
    environment_id: str
    code_id: str
    compute: str
    num_nodes: int
    processes_per_node: int
    shm_size: str
    timeout_s: int
    inputs: Mapping[str, Mapping[str, str]]
    """name → {type: uri_file | uri_folder, uri}; read-only mounts."""
    outputs: Mapping[str, Mapping[str, str]]
    """name → {type: uri_folder | custom_model, uri}; read-write mounts."""
    environment_variables: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    """A job as Azure ML sees it."""

    name: str
    status: str
    """Azure ML's own word: ``Queued``, ``Running``, ``Completed`` …"""
    tags: Mapping[str, str] = field(default_factory=dict)
    studio_url: str | None = None
    error: str | None = None
    """The service's message for a failed job, where it has one."""


class JobService(Protocol):
    """Azure ML jobs."""

    def submit(self, spec: JobSpec) -> JobStatus:
        """Create the job, or meet the one that exists under its name (idempotent).

        Raises SubmissionRefusedError where the service refuses it for good.
        """
        ...

    def status(self, name: str) -> JobStatus | None:
        """Return a job's status, None where Azure ML does not know it."""
        ...

    def cancel(self, name: str) -> None:
        """Ask for a cancellation; a job that has ended stays as it is."""
        ...

    def log_tail(self, name: str, *, max_bytes: int) -> str | None:
        """Return the end of the root's log, None where there is none (yet)."""
        ...


@dataclass(frozen=True, kw_only=True)
class ModelRegistration:
    """A model version to register: the version is explicit, so a repetition meets itself."""

    name: str
    version: str
    path: str
    """``azureml://jobs/<run_id>/outputs/model``."""
    description: str
    tags: Mapping[str, str]
    """Lineage: run, dataset version, fingerprint, code, metrics."""


class ModelRegistry(Protocol):
    """Azure ML models."""

    def register(self, registration: ModelRegistration) -> None:
        """Create the model version, or meet the same one."""
        ...


class Notifier(Protocol):
    """Delivers notifications of one kind of recipient."""

    def send(self, notification: NotificationRecord) -> None:
        """Deliver. Raises NotificationError where the recipient did not take it."""
        ...


class Clock(Protocol):
    """The one clock."""

    def __call__(self) -> datetime:
        """Return the time now, aware, UTC."""
        ...


Document = Mapping[str, Any]
