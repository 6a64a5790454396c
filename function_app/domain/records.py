"""The records of the ledger: what it holds of shards, closings, runs, notifications and the history."""

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
"""A split's counter is spread over this many rows by shard index, so that writers seldom meet."""


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
    """Of the content that was judged, normalised (no quotes, upper case)."""
    state: ShardState
    size_bytes: int
    crc32c: str
    num_records: int
    content_format: str | None = None
    """``tfrecord``, ``tfrecord gzip`` …, empty for what is no shard; None in rows written before this was kept."""
    validated_at: datetime
    reasons: tuple[Reason, ...] = ()
    statistics: Mapping[str, Any] = field(default_factory=dict)

    @property
    def bucket(self) -> int:
        """The bucket whose counter this shard moves."""
        return self.index % NUM_BUCKETS


@dataclass(frozen=True, kw_only=True)
class Generation:
    """The n-th closing of a dataset version."""

    dataset_version: DatasetVersion
    number: int
    """1 for the first closing."""
    fingerprint: str
    manifest_path: str
    """Within the state container."""
    num_shards: int
    num_records: int
    closed_at: datetime
    auto_run_id: str | None = None
    """The run that the closing itself started; None until it is claimed."""


PERSON = "person"
GENERATION = "generation"
"""Who canceled a run: somebody, or newer data."""


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """One attempt of a logical run. ``run_id`` is the Azure ML job's name."""

    run_id: str
    logical_run: str
    """``run_id`` without the attempt; the checkpoint path hangs on it."""
    attempt: int
    dataset_version: DatasetVersion
    generation: int
    fingerprint: str
    pipeline: str
    trigger: str
    """``closed``, ``http`` or ``cli``."""
    spec: Mapping[str, Any]
    """The resolved job, JSON-ready, as it was first submitted: a repetition sends this very one."""
    spec_hash: str
    created_at: datetime
    state: RunState = RunState.PLANNED
    state_since: datetime
    claimed_until: datetime | None = None
    """While it is submitting: until then one handler is at it, afterwards another may take over."""
    submitted_at: datetime | None = None
    ended_at: datetime | None = None
    reason: str | None = None
    """Why it failed, was lost, or was not registered."""
    log_tail: str | None = None
    model_name: str | None = None
    model_version: str | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    num_nodes: int = 1
    world_size: int | None = None
    notified_at: datetime | None = None
    forced_by: str | None = None
    """The key of the request that asked to train again on purpose; None where nobody did."""
    started_at: datetime | None = None
    """When it was first seen running: queueing is not paid for."""
    not_before: datetime | None = None
    """It is not submitted before this: an attempt that waits for nodes."""
    cancel_requested_at: datetime | None = None
    canceled_by: str | None = None
    """``PERSON`` or ``GENERATION``; None where nobody of ours asked."""
    cancel_reason: str | None = None
    failure_class: str | None = None
    """Why it failed, as one of ``failure_classes.FailureClass``."""
    remedy: str | None = None
    """What was decided about it, as one of ``failure_classes.Remedy``; stands from the write that made it failed."""
    failure_evidence: str | None = None
    """The very words that decided on the class."""
    remedy_reason: str | None = None
    next_timeout_s: int | None = None
    """What the pipeline's budget leaves the next attempt."""
    next_compute: str | None = None
    """Where the next attempt is to run, if elsewhere."""
    next_run_id: str | None = None
    """The attempt that continues this one: people are told how that one ends, not this one."""
    revision: str = ""
    """The ledger's own mark of this state of the row; changed by every write."""


class NotificationState(StrEnum):
    """Where a notification stands."""

    PENDING = "pending"
    SENDING = "sending"
    SENT = "sent"


@dataclass(frozen=True, kw_only=True)
class NotificationRecord:
    """One outbox row: one outcome, one recipient."""

    key: str
    """Idempotency key: subject, outcome, recipient. The CloudEvent's id is made of it."""
    subject: str
    """A run id, or ``dataset/version``."""
    outcome: str
    """``registered``, ``not_registered``, ``failed``, ``canceled``, ``lost``, ``version_changed`` …"""
    recipient: str
    """As the pipeline names it: ``topic`` or ``webhook:LANDFALL_WEBHOOK_PEOPLE``."""
    content: Mapping[str, Any]
    created_at: datetime
    state: NotificationState = NotificationState.PENDING
    tries: int = 0
    last_error: str | None = None
    not_before: datetime | None = None
    """A failed or interrupted delivery is not tried again before this."""
    sent_at: datetime | None = None
    revision: str = ""


@dataclass(frozen=True, kw_only=True)
class HistoryEntry:
    """One entry of the history: what came, what was done with it, and why."""

    subject: str
    """``dataset/version``, a run id, or a blob's path."""
    at: datetime
    action: str
    """A stable word: ``shard_accepted``, ``event_suppressed``, ``run_submitted`` …"""
    reason: str
    details: Mapping[str, Any] = field(default_factory=dict)


_ID_CHARS = 16


class DeadLetterState(StrEnum):
    """Where a dead letter stands."""

    WAITING = "waiting"
    REPLAYED = "replayed"


@dataclass(frozen=True, kw_only=True)
class DeadLetter:
    """A payload that was given up. The same payload of a source is the same letter, however often it dies."""

    dead_letter_id: str
    source: str
    """``shard-uploaded``, ``training-requested``, ``run-changed``, or the type of an event that is none of these."""
    subject: str
    """The blob's path, run id or ``dataset/version`` that it is about; empty where it cannot be understood."""
    payload: str
    is_whole: bool
    """False where the payload was longer than a row may be: only its beginning is kept, and nothing replays it."""
    error: str
    """The last known one, in words."""
    tries: int
    died_at: datetime
    death: str = ""
    """Of which death it is, see GivenUp."""
    num_deaths: int = 1
    state: DeadLetterState = DeadLetterState.WAITING
    num_replays: int = 0
    replayed_at: datetime | None = None
    revision: str = ""
    """The ledger's own mark of this state of the row."""


def dead_letter_id(source: str, payload: str) -> str:
    """Return the name of a dead letter, made of what it is."""
    return hashlib.sha256(f"{source}\n{payload}".encode("utf-8", "surrogatepass")).hexdigest()[:_ID_CHARS]


def dead_letter_order(letter: DeadLetter) -> tuple[bool, float, str]:
    """Sort letters: those that wait for a replay first, then the last to die first."""
    return letter.state is not DeadLetterState.WAITING, -letter.died_at.timestamp(), letter.dead_letter_id


@dataclass(frozen=True, kw_only=True)
class GivenUp:
    """What a source of dead letters holds: one message that was given up, or one event."""

    source: str
    payload: str
    identity: str
    """Under which the handler's own errors are on record: the payload, or the event's id."""
    error: str
    """What the giver-up says of the reason; empty where it says nothing."""
    tries: int
    """As far as the giver-up says; 0 where it does not."""
    died_at: datetime
    """Storage tells it to the second."""
    death: str
    """Tells one death of a payload from another: the message's id, the ETag of the blob with the event."""
    is_whole: bool = True


@dataclass(frozen=True, kw_only=True)
class BlobFacts:
    """A blob as it is now."""

    path: str
    """Within the data container: ``dataset/version/shard``."""
    etag: str
    """Normalised: no quotes, upper case."""
    size_bytes: int
    last_modified: datetime


def normalise_etag(etag: str) -> str:
    """Return an ETag without quotes and weakness mark, in upper case.

    Fit to compare and to store, not to be sent back: services compare the text that they gave out.
    """
    return etag.strip().removeprefix("W/").strip('"').upper()


def same_verdict(stored: ShardRecord | None, shard: ShardRecord) -> bool:
    """Whether a verdict repeats the one on record: the same bytes were judged, with the same outcome."""
    return stored is not None and (stored.etag, stored.state) == (shard.etag, shard.state)


def counter_change(stored: ShardRecord | None, shard: ShardRecord) -> int:
    """By how much the accepted shards of a bucket change when a verdict replaces the one on record: -1, 0 or 1."""
    was_accepted = stored is not None and stored.state is ShardState.ACCEPTED
    return int(shard.state is ShardState.ACCEPTED) - int(was_accepted)


def is_unfinished(run: RunRecord) -> bool:
    """Whether a run still needs care: it is not settled, or people should be told how it ended and were not."""
    if run.state not in SETTLED:
        return True
    return run.notified_at is None and run.next_run_id is None and run.state is not RunState.SUPPRESSED
