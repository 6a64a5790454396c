"""The interfaces that the flows need, implemented by ``adapters`` on Azure and by ``testing`` in memory.

Every method may raise ServiceUnavailableError if trying again later may help.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Protocol

from function_app.domain.capacity import Capacity
from function_app.domain.events import QueuedMessage, TrainingRequest
from function_app.domain.jobs import JobAssets, JobSpec, JobStatus, LogPart, ModelRegistration
from function_app.domain.records import (
    BlobFacts,
    DatasetVersion,
    DeadLetter,
    Generation,
    HistoryEntry,
    NotificationRecord,
    RecordedShard,
    RunRecord,
    ShardMark,
    ShardRecord,
    Undelivered,
)
from function_app.domain.run_queue import RunQueue
from function_app.domain.run_states import RunState
from shard_validation import ShardSource


class ShardLedger(Protocol):
    """Verdicts on shards, and the counters and split sizes that say when a version is complete.

    Every method may raise ServiceUnavailableError.
    """

    def claim_split_size(self, version: DatasetVersion, split: str, num_shards: int) -> int:
        """Claim that a split has ``num_shards`` shards; return the number on record, which is the first claim's."""
        ...

    def move_split_size(self, version: DatasetVersion, split: str, *, held: int, num_shards: int) -> int:
        """Replace the number on record if it is still ``held``; return the number on record afterwards."""
        ...

    def split_sizes(self, version: DatasetVersion) -> Mapping[str, int]:
        """Return the claimed number of shards of each split; empty for an unknown version."""
        ...

    def shard(self, version: DatasetVersion, split: str, index: int) -> ShardRecord | None:
        """Return the verdict on one position, None if there is none."""
        ...

    def record_shard(self, shard: ShardRecord, *, is_first: bool = False) -> RecordedShard:
        """Write a verdict and move its bucket's counter, in one transaction.

        ``is_first``: the caller has just seen that the position has no verdict. This saves a read, and has no effect
        if there is one. Raises LedgerConflictError if another writer kept winning.
        """
        ...

    def record_first_verdicts(self, shards: Sequence[ShardRecord]) -> int | None:
        """Write the verdicts on accepted shards of one split and bucket, and move its counter, in one transaction.

        Returns the counter. Returns None without writing if a position has a verdict, or if the rows are too large
        for one transaction. Raises LedgerConflictError if another writer kept winning.
        """
        ...

    def accepted_in_bucket(self, version: DatasetVersion, split: str, bucket: int) -> int:
        """Return one counter: accepted shards of a split whose index falls into the bucket."""
        ...

    def shards(self, version: DatasetVersion) -> Iterator[ShardRecord]:
        """Yield every verdict of a version: O(shards) operations. For closing, the API and sweeps only."""
        ...

    def shard_marks(self, version: DatasetVersion) -> Sequence[ShardMark]:
        """Return every verdict of a version without reasons and statistics, in any order: faster than `shards`."""
        ...


class VersionLedger(Protocol):
    """Dataset versions and their closings. Every method may raise ServiceUnavailableError."""

    def versions(self, dataset: str | None = None) -> Iterator[DatasetVersion]:
        """Yield every dataset version that has a claimed split."""
        ...

    def add_generation(self, generation: Generation) -> bool:
        """Insert a closing; return False if that number exists (another handler was first)."""
        ...

    def latest_generation(self, version: DatasetVersion) -> Generation | None:
        """Return the last closing of a version, None if it was never complete."""
        ...

    def generations(self, version: DatasetVersion) -> list[Generation]:
        """Return every closing of a version, the latest first; all others are superseded."""
        ...

    def latest_generations(self, dataset: str) -> Iterator[Generation]:
        """Yield the last closing of every version of a dataset, in any order: one operation for 1,000 closings."""
        ...

    def claim_auto_run(self, generation: Generation, run_id: str) -> str:
        """Claim the run that this closing starts; return the run id on record, which is the first claim's."""
        ...


class RunLedger(Protocol):
    """Runs and their attempts. Every method may raise ServiceUnavailableError."""

    def add_run(self, run: RunRecord) -> bool:
        """Insert a run, which claims its id; return False if the run id exists."""
        ...

    def run(self, run_id: str) -> RunRecord | None:
        """Return a run, None if there is none."""
        ...

    def save_run(self, run: RunRecord) -> RunRecord:
        """Write a changed run if its revision is still the ledger's; return it with the new one.

        Raises IllegalTransitionError if the state on record does not lead to the new one, LedgerConflictError if
        another writer was first.
        """
        ...

    def add_attempt(self, run: RunRecord, following: RunRecord) -> tuple[RunRecord, RunRecord]:
        """Save a run that names its next attempt, and insert that attempt, atomically.

        Returns both as they are on record. Raises LedgerConflictError if another writer changed the run first, or
        the attempt exists.
        """
        ...

    def unfinished_runs(self) -> Iterator[RunRecord]:
        """Yield the runs that still need care: not settled, or settled without the notification that is due."""
        ...

    def runs(
        self,
        *,
        limit: int = 100,
        dataset: str | None = None,
        state: RunState | None = None,
        older_than: RunRecord | None = None,
    ) -> list[RunRecord]:
        """Return the newest runs first: of one dataset, in one state, or that come after a run of this list."""
        ...


class RunQueueLedger(Protocol):
    """The run queue: which runs are admitted and which wait. Every method may raise ServiceUnavailableError."""

    def run_queue(self) -> RunQueue:
        """Return the run queue; an empty one if nothing was written yet."""
        ...

    def change_run_queue(self, change: Callable[[RunQueue], RunQueue]) -> tuple[RunQueue, RunQueue]:
        """Apply a pure change as one compare-and-swap; return the queue before and after it.

        Nothing is written if nothing changes. Raises LedgerConflictError if other writers kept winning.
        """
        ...


class Outbox(Protocol):
    """Notifications, written before they are sent. Every method may raise ServiceUnavailableError."""

    def add_notification(self, notification: NotificationRecord) -> bool:
        """Insert an outbox row; return False if its key exists."""
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
        """Add one to a counter; callers must keep the number of names and keys small."""
        ...

    def mark(self, name: str) -> str | None:
        """Return a mark, None if there is none."""
        ...

    def set_mark(self, name: str, text: str) -> None:
        """Replace a mark; of several concurrent writers one wins."""
        ...

    def change_mark(self, name: str, before: str | None, after: str) -> bool:
        """Replace a mark if it is still ``before``, None for no mark; return False if it is not."""
        ...


class DeadLetterLedger(Protocol):
    """Dead letters of the ledger. Every method may raise ServiceUnavailableError."""

    def add_dead_letter(self, letter: DeadLetter) -> bool:
        """Insert a dead letter; return False if its id exists."""
        ...

    def dead_letter(self, dead_letter_id: str) -> DeadLetter | None:
        """Return one dead letter, None if there is none."""
        ...

    def save_dead_letter(self, letter: DeadLetter) -> DeadLetter:
        """Write a changed dead letter under its revision. Raises LedgerConflictError."""
        ...

    def dead_letters(self, *, limit: int = 100) -> list[DeadLetter]:
        """Return dead letters: waiting ones first, then the newest first."""
        ...


class NotifyLedger(Outbox, HistoryLedger, DeadLetterLedger, Protocol):
    """The part of the ledger that notifications use."""


class IngestLedger(ShardLedger, VersionLedger, RunLedger, Notes, NotifyLedger, Protocol):
    """The part of the ledger between an upload and a closed version."""


class RunsLedger(ShardLedger, VersionLedger, RunLedger, RunQueueLedger, Notes, NotifyLedger, Protocol):
    """The part of the ledger between a request and a registered model."""


class Ledger(
    ShardLedger, VersionLedger, RunLedger, RunQueueLedger, Outbox, HistoryLedger, Notes, DeadLetterLedger, Protocol
):
    """The whole durable ledger.

    Two implementations keep the same contract tests: ``adapters/tables`` (Azure Table storage) and ``testing``
    (in memory).
    """


class DeadLetterSource(Protocol):
    """A source of dead letters: a poison queue, or the container to which Event Grid writes."""

    def undelivered(self, *, limit: int) -> Iterator[Undelivered]:
        """Yield what was given up. An item is deleted at the source when the caller asks for the next one."""
        ...


class MessageQueue(Protocol):
    """A queue of messages, in addition to its trigger."""

    def send_text(self, text: str) -> None:
        """Append a message."""
        ...

    def take(self, limit: int, *, hidden_for: timedelta) -> Sequence[QueuedMessage]:
        """Take messages, at most 32. One that is not deleted within the time is delivered again."""
        ...

    def delete(self, message: QueuedMessage) -> None:
        """Delete a message that was taken, unless it has been delivered again since."""
        ...


def passed_over(prefix: str) -> None:
    """Ignore a blob that cannot be listed; the sweep records it."""
    del prefix


class ShardStore(Protocol):
    """The shards in the data container, read only."""

    def facts(self, path: str, *, content_up_to: int = 0) -> BlobFacts | None:
        """Return a blob's properties, with the content of one of up to so many bytes; None if it is gone."""
        ...

    def open(self, facts: BlobFacts) -> ShardSource:
        """Open a blob pinned to the ETag in ``facts``: reads raise SourceChangedError once it was overwritten.

        Content that ``facts`` holds is not read again.
        """
        ...

    def list(self, prefix: str, *, unlisted: Callable[[str], object] = passed_over) -> Iterator[BlobFacts]:
        """Yield the blobs below a prefix, in the order of their names.

        If one name prevents storage from listing, blobs whose names have only letters, digits, ``-``, ``.``, ``_``
        and ``/`` are yielded, and ``unlisted`` gets the longest such prefix of that name.
        """
        ...


class RejectedCopies(Protocol):
    """Copies of rejected shards, in other containers of the data account, which must exist."""

    def copy(self, facts: BlobFacts, container: str, path: str) -> bool:
        """Copy exactly the content in ``facts`` to a new blob; return False if the blob exists.

        Raises SourceChangedError, SourceGoneError, StorageRefusedError if the container does not exist.
        """
        ...

    def note(self, container: str, path: str, content: bytes) -> None:
        """Write a small document beside a copy."""
        ...


class DocumentStore(Protocol):
    """Small documents in a container of the host's account: manifests, training reports, checkpoints."""

    def write_once(self, path: str, content: bytes) -> bool:
        """Write unless the document exists; return False, without a change, if it does."""
        ...

    def write(self, path: str, content: bytes) -> None:
        """Write or replace: of concurrent writers the last one wins."""
        ...

    def delete(self, path: str) -> None:
        """Delete a document, if it exists."""
        ...

    def read(self, path: str, *, max_bytes: int) -> bytes | None:
        """Return a document, None if there is none. Raises LandfallError if it is larger than allowed."""
        ...

    def has_any(self, folder: str) -> bool:
        """Whether there is a document in a folder, or in one below it."""
        ...

    def names(self, folder: str, *, most: int) -> list[str]:
        """Return the paths of at most so many documents in a folder and below it, relative to it, in order."""
        ...


class RequestQueue(Protocol):
    """The queue ``training-requested``."""

    def send(self, request: TrainingRequest, *, hidden_for: timedelta = timedelta(0)) -> QueuedMessage:
        """Append a message, which the trigger gets after this time."""
        ...

    def delete(self, message: QueuedMessage) -> None:
        """Delete a message that was sent, unless it has been delivered since."""
        ...


class JobService(Protocol):
    """Azure ML jobs."""

    def submit(self, spec: JobSpec) -> JobStatus:
        """Create the job, or return the existing job with this name (idempotent).

        Raises SubmissionRefusedError if the service refuses it permanently.
        """
        ...

    def status(self, name: str) -> JobStatus | None:
        """Return a job's status, None if Azure ML does not know it."""
        ...

    def cancel(self, name: str) -> None:
        """Request a cancellation; a job that has ended is not changed."""
        ...

    def ours(self) -> list[JobStatus]:
        """Return the newest jobs with Landfall's tags: one page of the service."""
        ...

    def has_compute(self, name: str) -> bool:
        """Whether the workspace has a compute of that name."""
        ...

    def assets(self, spec: JobSpec) -> JobAssets:
        """Return the known facts about a job's environment and code. Raises SubmissionRefusedError."""
        ...

    def capacity(self) -> Capacity:
        """Return the workspace's current clusters, and the region's quotas if the identity may read them.

        The result is cached for some seconds. Raises SubmissionRefusedError.
        """
        ...

    def log_tail(self, name: str, *, max_bytes: int) -> str | None:
        """Return the end of the root's log, None if there is none (yet). Raises LogUnreadableError."""
        ...

    def log_part(self, name: str, *, rank: int, after: int | None, max_bytes: int) -> LogPart | None:
        """Return bytes of a rank's log from byte ``after`` on, or its end for None; None if there is no log (yet).

        Raises LogUnreadableError.
        """
        ...

    def logged_metrics(self, name: str) -> Mapping[str, float]:
        """Return the last value of each metric that a job logged to its MLflow run; empty if there is none.

        At most MAX_LOGGED_METRICS, of which none is infinite or not a number. Raises MetricsUnreadableError.
        """
        ...


class ModelRegistry(Protocol):
    """Azure ML models."""

    def register(self, registration: ModelRegistration) -> None:
        """Create the model version; an existing one is not changed."""
        ...

    def tag(self, name: str, version: str, tag: str, value: str | None) -> None:
        """Set or remove one tag of a model version. Raises SubmissionRefusedError if there is no such version."""
        ...

    def find(self, name: str, version: str) -> ModelRegistration | None:
        """Return a model version as the registry has it, None if there is none."""
        ...


class Notifier(Protocol):
    """Delivers notifications of one kind of recipient."""

    def send(self, notification: NotificationRecord) -> None:
        """Deliver a notification. Raises NotificationError if the recipient did not accept it."""
        ...


class Clock(Protocol):
    """The clock for facts; durations use ``time.monotonic``."""

    def __call__(self) -> datetime:
        """Return the time now, aware, UTC."""
        ...


def utcnow() -> datetime:
    """Return the time now, aware, UTC."""
    return datetime.now(UTC)
