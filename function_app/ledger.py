"""The ledger: what Landfall knows for good. Records, states, legal transitions, and the port to the tables.

Two adapters keep the same contract tests: ``adapters/table_ledger.py`` (Azure Table storage) and
``adapters/memory_ledger.py`` (for tests, shipped).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from function_app.dead_letters import DeadLetters
from function_app.notes import Notes
from function_app.validation import Reason

NUM_BUCKETS = 16
"""A split's counter is spread over this many rows by shard index, so that writers seldom meet."""


class ShardState(StrEnum):
    """A shard's verdict, as stored."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"


class RunState(StrEnum):
    """A run's state, as stored."""

    PLANNED = "planned"
    SUBMITTING = "submitting"
    SUBMITTED = "submitted"
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    LOST = "lost"
    REGISTERED = "registered"
    NOT_REGISTERED = "not_registered"


_S = RunState
_ENDS = frozenset({_S.COMPLETED, _S.FAILED, _S.CANCELED, _S.LOST})
TRANSITIONS: Mapping[RunState, frozenset[RunState]] = {
    _S.PLANNED: frozenset({_S.SUBMITTING, _S.CANCELED}),
    _S.SUBMITTING: frozenset({_S.SUBMITTED, _S.FAILED, _S.CANCELED}),
    _S.SUBMITTED: frozenset({_S.QUEUED, _S.RUNNING}) | _ENDS,
    _S.QUEUED: frozenset({_S.RUNNING}) | _ENDS,
    _S.RUNNING: _ENDS,
    _S.COMPLETED: frozenset({_S.REGISTERED, _S.NOT_REGISTERED}),
    _S.FAILED: frozenset(),
    _S.CANCELED: frozenset(),
    _S.LOST: frozenset(),
    _S.REGISTERED: frozenset(),
    _S.NOT_REGISTERED: frozenset(),
}
"""Only forward. ``notified`` is no state but a time beside it: whoever looks later still sees how it ended."""

SETTLED = frozenset(state for state, following in TRANSITIONS.items() if not following)
"""States that a run never leaves; what is left to do then is to tell people."""


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
class Decision:
    """One line of the story: what came, what was decided, and why."""

    subject: str
    """``dataset/version``, a run id, or a blob's path."""
    at: datetime
    action: str
    """A stable word: ``shard_accepted``, ``event_suppressed``, ``run_submitted`` …"""
    reason: str
    details: Mapping[str, Any] = field(default_factory=dict)


class Ledger(DeadLetters, Notes, Protocol):
    """The durable table. Every method may raise ServiceUnavailableError."""

    # -- shards ---------------------------------------------------------------------------------------------
    def claim_split_size(self, version: DatasetVersion, split: str, num_shards: int) -> int:
        """State that a split has ``num_shards`` shards; return the number on record, the first claim's."""
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

    # -- versions -------------------------------------------------------------------------------------------
    def versions(self) -> Iterator[DatasetVersion]:
        """Yield every dataset version that has a claimed split."""
        ...

    def add_generation(self, generation: Generation) -> bool:
        """Insert a closing; False where that number exists (somebody else closed it first)."""
        ...

    def latest_generation(self, version: DatasetVersion) -> Generation | None:
        """Return the last closing of a version, None while it was never whole."""
        ...

    def claim_auto_run(self, generation: Generation, run_id: str) -> str:
        """Name the run that this closing starts, once; return the name on record, the first claim's."""
        ...

    # -- runs -----------------------------------------------------------------------------------------------
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

    def unfinished_runs(self) -> Iterator[RunRecord]:
        """Yield the runs that still need care: not settled, or settled and people not told."""
        ...

    def runs(self, *, limit: int = 100, dataset: str | None = None) -> list[RunRecord]:
        """Return the newest runs first."""
        ...

    # -- outbox ---------------------------------------------------------------------------------------------
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

    # -- the story ------------------------------------------------------------------------------------------
    def record_decision(self, decision: Decision) -> None:
        """Append one line to a subject's story."""
        ...

    def decisions(self, subject: str) -> list[Decision]:
        """Return a subject's story, oldest first."""
        ...
