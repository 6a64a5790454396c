"""What the steps need of the world, besides the ledger. The adapters implement it; tests have doubles.

Every method may raise ServiceUnavailableError where trying again later may help.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Protocol, Self

from function_app.errors import InvalidEventError
from function_app.ledger import DatasetVersion, NotificationRecord
from shard_validation import ShardSource

MAX_REQUEST_BYTES = 4096
SPEC_HASH_TAG = "landfall.spec_hash"
"""The tag by which a job that has our name is recognised as the very one that was submitted."""


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


class Quarantine(Protocol):
    """Other containers of the data account: copies of what was rejected. It creates the container it misses."""

    def copy(self, facts: BlobFacts, container: str, path: str) -> bool:
        """Copy the very content in ``facts`` to a blob that is not there yet; False where it is.

        Raises SourceChangedError, SourceGoneError.
        """
        ...

    def note(self, container: str, path: str, content: bytes) -> None:
        """Write a small document beside a copy."""
        ...


class DocumentStore(Protocol):
    """Small documents in a container of the host's account: manifests, training reports, checkpoints."""

    def write_once(self, path: str, content: bytes) -> bool:
        """Write unless it exists; False where it did (its content is left as it was)."""
        ...

    def write(self, path: str, content: bytes) -> None:
        """Write, over what may be there: the last writer wins, whole."""
        ...

    def delete(self, path: str) -> None:
        """Delete; an absent document is none either way."""
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

    def to_json(self) -> str:
        """Return the message's text."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read what `to_json` wrote. Raises InvalidEventError."""
        if len(text) > MAX_REQUEST_BYTES:
            raise InvalidEventError(f"training request should be at most {MAX_REQUEST_BYTES} bytes, was {len(text)}")
        try:
            members = json.loads(text)
            request = cls(**{**members, "dataset_version": DatasetVersion(**members["dataset_version"])})
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidEventError(f"training request should be what Landfall sends, was not: {error!r}") from error
        return request._checked()

    def _checked(self) -> Self:
        version = self.dataset_version
        texts = (version.dataset, version.version, self.trigger, self.run_id or "-")
        if not all(isinstance(t, str) and t for t in texts) or type(self.generation) is not int:
            raise InvalidEventError(f"training request has members of wrong types: {self!r}")
        return self


class RequestQueue(Protocol):
    """The queue ``training-requested``."""

    def send(self, request: TrainingRequest) -> None:
        """Append a message."""
        ...


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """Where jobs run, and what was registered there at deployment."""

    subscription_id: str
    resource_group: str
    name: str
    environment_id: str
    """Full ARM id with its version, as is ``code_id``."""
    code_id: str
    data_datastore: str
    state_datastore: str
    runs_datastore: str

    def datastore_uri(self, datastore: str, path: str) -> str:
        """Return the full form of an ``azureml://`` uri: it means the same from everywhere."""
        where = f"subscriptions/{self.subscription_id}/resourcegroups/{self.resource_group}/workspaces/{self.name}"
        return f"azureml://{where}/datastores/{datastore}/paths/{path}"


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
    error_code: str | None = None
    """The service's codes from the outside in, as ``UserError/ExecutionFailed``."""


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

    def ours(self) -> list[JobStatus]:
        """Return jobs with Landfall's tags, as many as one call of the service lists."""
        ...

    def has_compute(self, name: str) -> bool:
        """Whether the workspace has a compute of that name."""
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
