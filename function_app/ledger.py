"""The ledger: what Landfall knows for good, and the port to the tables.

Two adapters keep the same contract tests: ``adapters/table_ledger.py`` (Azure Table storage) and
``adapters/memory_ledger.py`` (for tests, shipped). What a row holds is in ``records.py``, where a run may go in
``run_states.py``; both are named here too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from function_app.dead_letters import DeadLetters
from function_app.flights import FlightBoard
from function_app.notes import Notes
from function_app.records import (
    NUM_BUCKETS,
    DatasetVersion,
    Decision,
    Generation,
    NotificationRecord,
    NotificationState,
    RunRecord,
    ShardRecord,
    ShardState,
)
from function_app.run_states import SETTLED, TRANSITIONS, RunState

__all__ = [
    "NUM_BUCKETS",
    "SETTLED",
    "TRANSITIONS",
    "DatasetVersion",
    "Decision",
    "Generation",
    "Ledger",
    "NotificationRecord",
    "NotificationState",
    "RunRecord",
    "RunState",
    "ShardRecord",
    "ShardState",
]


class Ledger(DeadLetters, Notes, Protocol):
    """The durable table. Every method may raise ServiceUnavailableError."""

    # -- shards ---------------------------------------------------------------------------------------------
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

    def generations(self, version: DatasetVersion) -> list[Generation]:
        """Return every closing of a version, the latest first; all but that one are superseded."""
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

    def add_attempt(self, run: RunRecord, following: RunRecord) -> RunRecord:
        """Save a run, which names the attempt that continues it, and insert that attempt: both or neither.

        Returns the attempt as it is on record. Raises LedgerConflictError where somebody else wrote the run first, or
        the attempt exists.
        """
        ...

    def unfinished_runs(self) -> Iterator[RunRecord]:
        """Yield the runs that still need care: not settled, or settled and people not told though they should be."""
        ...

    def runs(self, *, limit: int = 100, dataset: str | None = None) -> list[RunRecord]:
        """Return the newest runs first."""
        ...

    # -- single flight --------------------------------------------------------------------------------------
    def flights(self) -> FlightBoard:
        """Return which runs go and which wait, as one row; an empty one where nothing was written yet."""
        ...

    def change_flights(self, change: Callable[[FlightBoard], FlightBoard]) -> tuple[FlightBoard, FlightBoard]:
        """Apply a pure change as one compare-and-swap; return the board before and after it.

        Nothing is written where it changes nothing. Raises LedgerConflictError where other writers kept winning.
        """
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
