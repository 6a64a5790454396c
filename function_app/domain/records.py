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
    """``tfrecord``, ``tfrecord gzip`` …; empty if the content is not a shard; None in rows of older deployments."""
    validated_at: datetime
    reasons: tuple[Reason, ...] = ()
    statistics: Mapping[str, Any] = field(default_factory=dict)
    digests: Mapping[str, str] | None = None
    """Algorithm → digest of the content, if the layout requires digests."""

    @property
    def bucket(self) -> int:
        """The bucket whose counter includes this shard."""
        return self.index % NUM_BUCKETS


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardMark:
    """The fields of a shard that a diagram of many shards needs: a tenth of a row."""

    split: str
    index: int
    num_shards: int
    name: str
    state: ShardState


@dataclass(frozen=True, kw_only=True)
class RecordedShard:
    """The result of recording a verdict."""

    replaced: ShardRecord | None
    """The previous verdict on the position."""
    accepted: int | None = None
    """Accepted shards of the bucket after this write; None if it did not change the counter."""


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
    """The run that the closing started automatically; None until it is claimed."""
    guess: str | None = None
    """The basis for assuming that the version is complete; None if that is certain."""
    table_version: int | None = None
    """The version of the Delta table that was closed; None for other layouts."""
    is_rearranged: bool = False
    """Whether the table has the same records as at the previous closing, in other files."""


def manifest_path(version: DatasetVersion, number: int, fingerprint: str) -> str:
    """Return the path of a closing's manifest within the state container."""
    return f"manifests/{version}/g{number}-{fingerprint[:12]}.json"


PERSON = "person"
GENERATION = "generation"
DATA = "data"
"""The cause of a cancellation: a person, a newer generation of the data, or shards replaced during the run."""


MAX_METRICS_CHARS = 16 << 10
"""Maximum JSON of a run's metrics, and of its evidence."""
OVERRIDE = "override"
"""Member of a run's evidence if a person overrode the gate: ``by``, ``why``, ``at``, and the ``gate``'s reason."""


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
    """In state submitting: the end of the handler's lease, after which another handler may take over."""
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
    """When the run was first seen running. Time in the queue costs nothing."""
    not_before: datetime | None = None
    """The earliest time of submission, for an attempt that waits for nodes."""
    cancel_requested_at: datetime | None = None
    canceled_by: str | None = None
    """``PERSON``, ``GENERATION`` or ``DATA``; None if Landfall did not request a cancellation."""
    cancel_reason: str | None = None
    failure_class: str | None = None
    """Why the run failed: a ``failures.FailureClass``."""
    remedy: str | None = None
    """The reaction to the failure: a ``failures.Remedy``, set in the same write as the state failed."""
    failure_evidence: str | None = None
    """The text that determined the failure class."""
    remedy_reason: str | None = None
    next_timeout_s: int | None = None
    """Time-out of the next attempt: the rest of the pipeline's time budget."""
    next_compute: str | None = None
    """The cluster of the next attempt, if it differs from this one's."""
    next_run_id: str | None = None
    """The attempt that continues this one. Recipients are notified of that attempt's end instead of this one's."""
    asked_at: datetime | None = None
    """The place in line: when the closing that started this run happened, or when a person requested the run. Later
    attempts keep it; None in rows of earlier releases."""
    sweep_id: str | None = None
    """The option sweep of the run, of which only the best run's model is registered; None outside sweeps."""
    sweep_number: int | None = None
    """Number of the run in its option sweep, from 1."""
    prediction: Mapping[str, Any] = field(default_factory=dict)
    """The prediction of its time and cost at submission, see ``planning.predictions``."""
    pace: Mapping[str, float] = field(default_factory=dict)
    """Times from its training report: ``record_s``, seconds per record, and ``job_s``, seconds outside the epochs."""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """Basis of the decision on registration: ``comparison`` with the current model, ``intervals`` of the metrics,
    ``promoted``, ``promotion`` in words, and ``override`` if a person overrode the gate. Members that do not apply
    are left out."""
    revision: str = ""
    """The ledger's mark of this state of the row; every write changes it."""

    @property
    def is_overridden(self) -> bool:
        """Whether a person registered its model although the gate had decided not to."""
        return OVERRIDE in self.evidence


class NotificationState(StrEnum):
    """State of a notification."""

    PENDING = "pending"
    SENDING = "sending"
    HELD = "held"
    """The notification waits for the end of the recipient's quiet hours."""
    GATHERED = "gathered"
    """The notification becomes part of a summary."""
    SENT = "sent"
    GIVEN_UP = "given_up"
    """Delivery failed so often that the notification is a dead letter."""


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
    """``topic``, or a recipient of the pipeline: ``webhook:LANDFALL_WEBHOOK_PEOPLE``, ``apprise:LANDFALL_TEAM``."""
    content: Mapping[str, Any]
    created_at: datetime
    state: NotificationState = NotificationState.PENDING
    tries: int = 0
    last_error: str | None = None
    not_before: datetime | None = None
    """The earliest time to repeat a failed or interrupted delivery, or the end of the quiet hours."""
    sent_at: datetime | None = None
    summary: str | None = None
    """Subject of the summary that contains it."""
    revision: str = ""

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to do for the notification."""
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
    """A payload that was given up. A payload of one source is a single dead letter, even if it fails repeatedly."""

    dead_letter_id: str
    source: str
    """``shard-uploaded``, ``training-requested``, ``run-changed``, or the type of another event."""
    subject: str
    """The blob's path, run id or ``dataset/version`` in the payload; empty if it cannot be understood."""
    payload: str
    is_whole: bool
    """False if the payload was too long for a row: only its beginning is kept, and it cannot be replayed."""
    error: str
    """The last known error."""
    tries: int
    died_at: datetime
    death: str = ""
    """The delivery that was given up, see Undelivered."""
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
    """One message or event that was given up, still in its source of dead letters."""

    source: str
    payload: str
    identity: str
    """The key under which the handler's errors are recorded: the payload or the event's id."""
    error: str
    """The reason that the host or Event Grid states; empty if it states none."""
    tries: int
    """Number of tries that the host or Event Grid states; 0 if it states none."""
    died_at: datetime
    """The time, with the resolution of storage: one second."""
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
    """The whole content, if it was requested and is small."""


def normalise_etag(etag: str) -> str:
    """Return an ETag in upper case, without quotes and without `W/`.

    Use it for comparing and storing, never in a request, because services compare the original text.
    """
    return etag.strip().removeprefix("W/").strip('"').upper()


def same_verdict(stored: ShardRecord | None, shard: ShardRecord) -> bool:
    """Whether a verdict repeats the one on record: same content, same outcome."""
    known = None if stored is None else (stored.etag, stored.state, stored.digests)
    return known == (shard.etag, shard.state, shard.digests)


def counter_change(stored: ShardRecord | None, shard: ShardRecord) -> int:
    """Return how a bucket's count of accepted shards changes if a verdict replaces another: by -1, 0 or 1."""
    was_accepted = stored is not None and stored.state is ShardState.ACCEPTED
    return int(shard.state is ShardState.ACCEPTED) - int(was_accepted)


def is_unfinished(run: RunRecord) -> bool:
    """Whether a run still needs work: it is not settled, or its recipients have not been notified of its end."""
    if run.state not in SETTLED:
        return True
    is_silent = run.state is RunState.SUPPRESSED and run.sweep_id is None  # not in a sweep, which continues
    return run.notified_at is None and run.next_run_id is None and not is_silent
