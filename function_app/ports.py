"""What the flows need of the world: protocols that ``adapters`` implements on Azure and ``testing`` in memory.

Every method may raise ServiceUnavailableError where trying again later may help.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Protocol

from function_app.domain.events import TrainingRequest
from function_app.domain.jobs import JobSpec, JobStatus, ModelRegistration
from function_app.domain.records import (
    BlobFacts,
    DatasetVersion,
    DeadLetter,
    Generation,
    GivenUp,
    HistoryEntry,
    NotificationRecord,
    RunRecord,
    ShardRecord,
)
from function_app.domain.run_queue import RunQueue
from shard_validation import ShardSource


class ShardLedger(Protocol):
    """Verdicts on shards, and the counters and split sizes that say when a version is whole.

    Every method may raise ServiceUnavailableError.
    """

    def claim_split_size(self, version: DatasetVersion, split: str, num_shards: int) -> int:
        """State that a split has ``num_shards`` shards; return the number on record, the first claim's."""
        ...

    def move_split_size(self, version: DatasetVersion, split: str, *, held: int, num_shards: int) -> int:
        """Replace the number on record if it is still ``held``; return the one that is on record then."""
        ...

    def split_sizes(self, version: DatasetVersion) -> Mapping[str, int]:
        """Return the number of shards of each split that was claimed; empty for an unknown version."""
        ...

    def shard(self, version: DatasetVersion, split: str, index: int) -> ShardRecord | None:
        """Return the verdict on one position."""
        ...

    def record_shard(self, shard: ShardRecord) -> ShardRecord | None:
        """Write a verdict and move its bucket's counter, in one transaction; return the row it replaced.

        Raises LedgerConflictError where another writer kept winning.
        """
        ...

    def accepted_in_bucket(self, version: DatasetVersion, split: str, bucket: int) -> int:
        """Return one counter: accepted shards of a split whose index falls into the bucket."""
        ...

    def shards(self, version: DatasetVersion) -> Iterator[ShardRecord]:
        """Yield every verdict of a version: O(shards) operations. For closing, the API and sweeps only."""
        ...


class VersionLedger(Protocol):
    """Dataset versions and their closings. Every method may raise ServiceUnavailableError."""

    def versions(self) -> Iterator[DatasetVersion]:
        """Yield every dataset version that has a claimed split."""
        ...

    def add_generation(self, generation: Generation) -> bool:
        """Insert a closing; False where that number exists (somebody else closed it first)."""
        ...

    def latest_generation(self, version: DatasetVersion) -> Generation | None:
        """Return the last closing of a version, None while it was never whole."""
        ...

    def generations(self, version: DatasetVersion) -> list[Generation]:
        """Return every closing of a version, the latest first; all but that one are superseded."""
        ...

    def claim_auto_run(self, generation: Generation, run_id: str) -> str:
        """Name the run that this closing starts, once; return the name on record, the first claim's."""
        ...


class RunLedger(Protocol):
    """Runs and their attempts. Every method may raise ServiceUnavailableError."""

    def add_run(self, run: RunRecord) -> bool:
        """Insert a run: the claim. False where the run id exists."""
        ...

    def run(self, run_id: str) -> RunRecord | None:
        """Return a run as it stands."""
        ...

    def save_run(self, run: RunRecord) -> RunRecord:
        """Write a changed run if its revision is still the ledger's; return it with the new one.

        Raises IllegalTransitionError where the state on record does not lead to the new one,
        LedgerConflictError where somebody else wrote first.
        """
        ...

    def add_attempt(self, run: RunRecord, following: RunRecord) -> tuple[RunRecord, RunRecord]:
        """Save a run, which names the attempt that continues it, and insert that attempt: both or neither.

        Returns both as they are on record. Raises LedgerConflictError where somebody else wrote the run first, or
        the attempt exists.
        """
        ...

    def unfinished_runs(self) -> Iterator[RunRecord]:
        """Yield the runs that still need care: not settled, or settled and people not told though they should be."""
        ...

    def runs(self, *, limit: int = 100, dataset: str | None = None) -> list[RunRecord]:
        """Return the newest runs first."""
        ...


class RunQueueLedger(Protocol):
    """The run queue: which runs are admitted and which wait. Every method may raise ServiceUnavailableError."""

    def run_queue(self) -> RunQueue:
        """Return the run queue; an empty one where nothing was written yet."""
        ...

    def change_run_queue(self, change: Callable[[RunQueue], RunQueue]) -> tuple[RunQueue, RunQueue]:
        """Apply a pure change as one compare-and-swap; return the queue before and after it.

        Nothing is written where it changes nothing. Raises LedgerConflictError where other writers kept winning.
        """
        ...


class Outbox(Protocol):
    """Notifications, written before they are sent. Every method may raise ServiceUnavailableError."""

    def add_notification(self, notification: NotificationRecord) -> bool:
        """Insert an outbox row; False where its key exists."""
        ...

    def save_notification(self, notification: NotificationRecord) -> NotificationRecord:
        """Write a changed row under its revision. Raises LedgerConflictError."""
        ...

    def unsent_notifications(self) -> Iterator[NotificationRecord]:
        """Yield the rows that are not sent."""
        ...

    def notifications(self, subject: str) -> list[NotificationRecord]:
        """Return the rows of one run or version, oldest first."""
        ...


class HistoryLedger(Protocol):
    """The audit trail of versions, runs and blobs. Every method may raise ServiceUnavailableError."""

    def add_history_entry(self, entry: HistoryEntry) -> None:
        """Append one entry to its subject's history."""
        ...

    def history(self, subject: str) -> list[HistoryEntry]:
        """Return a subject's entries, oldest first."""
        ...

    def history_below(self, prefix: str, *, limit: int) -> list[HistoryEntry]:
        """Return the entries of all subjects that begin with ``prefix``, oldest first; at most about ``limit``."""
        ...


class Notes(Protocol):
    """Counters and marks of the ledger. Every method may raise ServiceUnavailableError."""

    def count(self, name: str, key: str) -> None:
        """Add one to a counter; its name and key are the caller's, and there should be few of them."""
        ...

    def counts(self, name: str) -> Mapping[str, int]:
        """Return the counters of a name, by key."""
        ...

    def mark(self, name: str) -> str | None:
        """Return a mark, None where there is none."""
        ...

    def set_mark(self, name: str, text: str) -> None:
        """Write a mark over the one before; of several writers at once one wins."""
        ...


class DeadLetterLedger(Protocol):
    """Dead letters of the ledger. Every method may raise ServiceUnavailableError."""

    def add_dead_letter(self, letter: DeadLetter) -> bool:
        """Insert a letter; False where its id exists."""
        ...

    def dead_letter(self, dead_letter_id: str) -> DeadLetter | None:
        """Return one letter."""
        ...

    def save_dead_letter(self, letter: DeadLetter) -> DeadLetter:
        """Write a changed letter under its revision. Raises LedgerConflictError."""
        ...

    def dead_letters(self, *, limit: int = 100) -> list[DeadLetter]:
        """Return letters, those that wait for a replay first, then the last to die first."""
        ...


class Ledger(
    ShardLedger, VersionLedger, RunLedger, RunQueueLedger, Outbox, HistoryLedger, Notes, DeadLetterLedger, Protocol
):
    """The durable ledger as a whole: what Landfall knows for good.

    Two implementations keep the same contract tests: ``adapters/tables`` (Azure Table storage) and ``testing``
    (in memory).
    """


class DeadLetterSource(Protocol):
    """A place where the dead are found: a poison queue, a container that Event Grid writes."""

    def given_up(self, *, limit: int) -> Iterator[GivenUp]:
        """Yield what lies there; what the caller has come back for is taken away then, and not before."""
        ...


class MessageQueue(Protocol):
    """A queue to which a dead letter can be sent again."""

    def send_text(self, text: str) -> None:
        """Append a message."""
        ...


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


class RequestQueue(Protocol):
    """The queue ``training-requested``."""

    def send(self, request: TrainingRequest) -> None:
        """Append a message."""
        ...


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
