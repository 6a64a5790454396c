"""The records of the ledger: shards, closings, runs, notifications, history entries and dead letters."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from function_app.domain.run_states import SETTLED, RunState

if TYPE_CHECKING:
    from shard_validation import Reason

NUM_BUCKETS = 16
"""A split's counter is spread over this many rows by shard index, so that writers rarely conflict."""


class ShardState(StrEnum):
    """A shard's verdict, as stored."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"


@dataclass(frozen=True, kw_only=True, order=True)
class DatasetVersion:
    """Identity of a dataset version."""

    dataset: str
    version: str

    def __str__(self) -> str:
        """``dataset/version``, as in the blob's path."""
        return f"{self.dataset}/{self.version}"


@dataclass(frozen=True, kw_only=True)
class ShardRecord:
    """The verdict on one position of a split. A shard uploaded again replaces the row."""

    dataset_version: DatasetVersion
    split: str
    index: int
    num_shards: int
    name: str
    etag: str
    """ETag of the judged content, normalised (no quotes, upper case)."""
    state: ShardState
    size_bytes: int
    crc32c: str
    num_records: int
    content_format: str | None = None
    """``tfrecord``, ``tfrecord gzip`` …; empty where the content is no shard; None in rows of older deployments."""
    validated_at: datetime
    reasons: tuple[Reason, ...] = ()
    statistics: Mapping[str, Any] = field(default_factory=dict)
    digests: Mapping[str, str] | None = None
    """Algorithm → digest of the content, where the layout asked for any."""

    @property
    def bucket(self) -> int:
        """The bucket whose counter this shard moves."""
        return self.index % NUM_BUCKETS


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardMark:
    """What a drawing of many shards needs of each: a tenth of a row."""

    split: str
    index: int
    num_shards: int
    name: str
    state: ShardState


@dataclass(frozen=True, kw_only=True)
class RecordedShard:
    """What recording a verdict has found and changed."""

    replaced: ShardRecord | None
    """The verdict that the position had before."""
    accepted: int | None = None
    """Accepted shards of the bucket as this write left them; None where it did not move the counter."""


@dataclass(frozen=True, kw_only=True)
class Generation:
    """The n-th closing of a dataset version."""

    dataset_version: DatasetVersion
    number: int
    """1 for the first closing."""
    fingerprint: str
    manifest_path: str
    """Path within the state container."""
    num_shards: int
    num_records: int
    closed_at: datetime
    auto_run_id: str | None = None
    """The run that the closing started by itself; None until it is claimed."""
    guess: str | None = None
    """What it was guessed from that the version is whole; None where that is known."""
    table_version: int | None = None
    """The version of the Delta table that was closed; None for other layouts."""
    is_rearranged: bool = False
    """Whether the table has the records of the closing before, in other files."""


def manifest_path(version: DatasetVersion, number: int, fingerprint: str) -> str:
    """Return the path of a closing's manifest within the state container."""
    return f"manifests/{version}/g{number}-{fingerprint[:12]}.json"


PERSON = "person"
GENERATION = "generation"
DATA = "data"
"""What canceled a run: a person, a newer generation of the data, or shards that were replaced under it."""


OVERRIDE = "override"
"""Member of a run's evidence where a person overrode the gate: ``by``, ``why``, ``at``, and the ``gate``'s reason."""


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """One attempt of a logical run. ``run_id`` is the Azure ML job's name."""

    run_id: str
    logical_run: str
    """``run_id`` without the attempt; all attempts share its checkpoint path."""
    attempt: int
    dataset_version: DatasetVersion
    generation: int
    fingerprint: str
    pipeline: str
    trigger: str
    """``closed``, ``http`` or ``cli``."""
    spec: Mapping[str, Any]
    """The resolved job as JSON, as it was first submitted; a repeated submission sends the same."""
    spec_hash: str
    created_at: datetime
    state: RunState = RunState.PLANNED
    state_since: datetime
    claimed_until: datetime | None = None
    """While the run is submitting: the end of its handler's lease. After it another handler may take over."""
    data_etags: str | None = None
    """Digest of the names and ETags of the run's shards when it was submitted; later attempts keep it."""
    submitted_at: datetime | None = None
    ended_at: datetime | None = None
    reason: str | None = None
    """Why the run failed, was lost, or was not registered."""
    log_tail: str | None = None
    model_name: str | None = None
    model_version: str | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    num_nodes: int = 1
    world_size: int | None = None
    notified_at: datetime | None = None
    forced_by: str | None = None
    """Idempotency key of the request that forced this run; None for a run that was not forced."""
    started_at: datetime | None = None
    """When the run was first seen running: time in the queue costs nothing."""
    not_before: datetime | None = None
    """The run is not submitted before this time: an attempt that waits for nodes."""
    cancel_requested_at: datetime | None = None
    canceled_by: str | None = None
    """``PERSON``, ``GENERATION`` or ``DATA``; None where Landfall did not ask for a cancellation."""
    cancel_reason: str | None = None
    failure_class: str | None = None
    """Why the run failed: a ``failures.FailureClass``."""
    remedy: str | None = None
    """What is done about the failure: a ``failures.Remedy``, decided in the write that made the run failed."""
    failure_evidence: str | None = None
    """The text that decided the failure class."""
    remedy_reason: str | None = None
    next_timeout_s: int | None = None
    """Time-out of the next attempt: what is left of the pipeline's budget."""
    next_compute: str | None = None
    """The cluster of the next attempt, where it is another one."""
    next_run_id: str | None = None
    """The attempt that continues this one: people are notified of its end instead of this one's."""
    asked_at: datetime | None = None
    """When the version closed that started this run, or when a person requested it: its place in line. Later attempts
    keep it; None in rows of earlier releases."""
    sweep_id: str | None = None
    """The option sweep that the run belongs to: then its model is registered if it is the best one."""
    sweep_number: int | None = None
    """Number of the run in its option sweep, from 1."""
    prediction: Mapping[str, Any] = field(default_factory=dict)
    """What was predicted of its time and cost when it was submitted, see ``planning.predictions``."""
    pace: Mapping[str, float] = field(default_factory=dict)
    """What its training report has shown: ``record_s``, the seconds for a record, and ``job_s``, those besides."""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """What the registration was decided on: ``comparison`` with the current model, ``intervals`` of the metrics,
    ``promoted``, ``promotion`` in words, and ``override`` where a person overrode the gate; members that do not apply
    are left out."""
    revision: str = ""
    """The ledger's mark of this state of the row; every write changes it."""

    @property
    def is_overridden(self) -> bool:
        """Whether a person registered its model after the gate had decided not to."""
        return OVERRIDE in self.evidence


class NotificationState(StrEnum):
    """State of a notification."""

    PENDING = "pending"
    SENDING = "sending"
    HELD = "held"
    """Waits for the end of the recipient's quiet hours."""
    GATHERED = "gathered"
    """Becomes part of a summary."""
    SENT = "sent"
    GIVEN_UP = "given_up"
    """Tried so often that it is a dead letter."""


@dataclass(frozen=True, kw_only=True)
class NotificationRecord:
    """One row of the outbox: one outcome for one recipient."""

    key: str
    """Idempotency key: subject, outcome, recipient. The CloudEvent's id is derived from it."""
    subject: str
    """A run id, or ``dataset/version``."""
    outcome: str
    """``registered``, ``failed``, ``lost``, ``version_changed`` …: see ``domain/outcomes.py``."""
    recipient: str
    """``topic``, or what a pipeline names: ``webhook:LANDFALL_WEBHOOK_PEOPLE``, ``apprise:LANDFALL_TEAM``."""
    content: Mapping[str, Any]
    created_at: datetime
    state: NotificationState = NotificationState.PENDING
    tries: int = 0
    last_error: str | None = None
    not_before: datetime | None = None
    """A failed or interrupted delivery is not repeated before this time; what waits for quiet hours ends then."""
    sent_at: datetime | None = None
    summary: str | None = None
    """Subject of the summary that contains it."""
    revision: str = ""

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to do."""
        return self.state in (NotificationState.SENT, NotificationState.GIVEN_UP)


@dataclass(frozen=True, kw_only=True)
class HistoryEntry:
    """One entry of the history: what happened, what was decided, and why."""

    subject: str
    """``dataset/version``, a run id, or a blob's path."""
    at: datetime
    action: str
    """A stable word: ``shard_accepted``, ``event_suppressed``, ``run_submitted`` …"""
    reason: str
    details: Mapping[str, Any] = field(default_factory=dict)


_ID_CHARS = 16


class DeadLetterState(StrEnum):
    """State of a dead letter."""

    WAITING = "waiting"
    REPLAYED = "replayed"


@dataclass(frozen=True, kw_only=True)
class DeadLetter:
    """A payload that was given up. The same payload of one source is one dead letter, however often it fails."""

    dead_letter_id: str
    source: str
    """``shard-uploaded``, ``training-requested``, ``run-changed``, or the type of an event that is none of these."""
    subject: str
    """The blob's path, run id or ``dataset/version`` that it is about; empty where it cannot be understood."""
    payload: str
    is_whole: bool
    """False where the payload was too long for a row: only its beginning is kept, and it cannot be replayed."""
    error: str
    """The last known error."""
    tries: int
    died_at: datetime
    death: str = ""
    """Which delivery was given up, see Undelivered."""
    num_deaths: int = 1
    state: DeadLetterState = DeadLetterState.WAITING
    num_replays: int = 0
    replayed_at: datetime | None = None
    revision: str = ""
    """The ledger's own mark of this state of the row."""


def dead_letter_id(source: str, payload: str) -> str:
    """Return the id of a dead letter, derived from its source and payload."""
    return hashlib.sha256(f"{source}\n{payload}".encode("utf-8", "surrogatepass")).hexdigest()[:_ID_CHARS]


def dead_letter_order(letter: DeadLetter) -> tuple[bool, float, str]:
    """Return the sort key of a dead letter: waiting ones first, then the newest first."""
    return letter.state is not DeadLetterState.WAITING, -letter.died_at.timestamp(), letter.dead_letter_id


@dataclass(frozen=True, kw_only=True)
class Undelivered:
    """One message or event that was given up, as a source of dead letters holds it."""

    source: str
    payload: str
    identity: str
    """The key under which the handler's errors are recorded: the payload or the event's id."""
    error: str
    """The reason that the host or Event Grid states; empty where it states none."""
    tries: int
    """Number of tries that the host or Event Grid states; 0 where it states none."""
    died_at: datetime
    """To the second, as storage has it."""
    death: str
    """Distinguishes repeated failures of one payload: the message's id, or the ETag of the event's blob."""
    is_whole: bool = True


@dataclass(frozen=True, kw_only=True)
class BlobFacts:
    """Properties of a blob."""

    path: str
    """Path within the data container: ``dataset/version/shard``."""
    etag: str
    """Normalised: no quotes, upper case."""
    size_bytes: int
    last_modified: datetime
    content: bytes | None = field(default=None, repr=False, compare=False)
    """The whole content, where it was asked for and is small."""


def normalise_etag(etag: str) -> str:
    """Return an ETag without quotes and weakness mark, in upper case.

    Use it to compare and to store, never in a request: services compare the text that they sent.
    """
    return etag.strip().removeprefix("W/").strip('"').upper()


def same_verdict(stored: ShardRecord | None, shard: ShardRecord) -> bool:
    """Whether a verdict repeats the one on record: same content, same outcome."""
    known = None if stored is None else (stored.etag, stored.state, stored.digests)
    return known == (shard.etag, shard.state, shard.digests)


def counter_change(stored: ShardRecord | None, shard: ShardRecord) -> int:
    """Return the change of a bucket's count of accepted shards when a verdict replaces another: -1, 0 or 1."""
    was_accepted = stored is not None and stored.state is ShardState.ACCEPTED
    return int(shard.state is ShardState.ACCEPTED) - int(was_accepted)


def is_unfinished(run: RunRecord) -> bool:
    """Whether a run still needs care: it is not settled, or people have not been notified of its end."""
    if run.state not in SETTLED:
        return True
    is_silent = run.state is RunState.SUPPRESSED and run.sweep_id is None  # a sweep goes on, or ends, with its runs
    return run.notified_at is None and run.next_run_id is None and not is_silent
