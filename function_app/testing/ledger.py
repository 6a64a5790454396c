"""The ledger in memory, for tests. It passes the same contract tests as the tables."""

from __future__ import annotations

import itertools
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from function_app.adapters.tables.row_limits import (
    bounded_dead_letter,
    bounded_generation,
    bounded_history_entry,
    bounded_notification,
    bounded_run,
    bounded_shard,
)
from function_app.domain.errors import LedgerConflictError, NotFoundError
from function_app.domain.records import (
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
    counter_change,
    dead_letter_order,
    is_unfinished,
    same_verdict,
)
from function_app.domain.run_queue import RunQueue
from function_app.domain.run_states import RunState, check_transition

_LATEST = datetime.max.replace(tzinfo=UTC)


class MemoryLedger:
    """Implements Ledger in dictionaries under one lock; tests assert on the public attributes."""

    def __init__(self) -> None:
        self.dead_letter_rows: dict[str, DeadLetter] = {}
        self.counter_rows: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.mark_rows: dict[str, str] = {}
        self._revisions = itertools.count(1)
        self._lock = threading.RLock()
        self.split_rows: dict[tuple[DatasetVersion, str], int] = {}
        self.shard_rows: dict[tuple[DatasetVersion, str, int], ShardRecord] = {}
        self.counters: Counter[tuple[DatasetVersion, str, int]] = Counter()
        self.generation_rows: dict[tuple[DatasetVersion, int], Generation] = {}
        self.run_rows: dict[str, RunRecord] = {}
        self.notification_rows: dict[tuple[str, str], NotificationRecord] = {}
        self.history_rows: defaultdict[str, list[HistoryEntry]] = defaultdict(list)
        self.queue = RunQueue()

    # -- shards ---------------------------------------------------------------------------------------------
    def claim_split_size(self, version: DatasetVersion, split: str, num_shards: int) -> int:
        """See Ledger."""
        with self._lock:
            return self.split_rows.setdefault((version, split), num_shards)

    def move_split_size(self, version: DatasetVersion, split: str, *, held: int, num_shards: int) -> int:
        """See Ledger."""
        with self._lock:
            if self.split_rows.get((version, split)) == held:
                self.split_rows[version, split] = num_shards
            return self.split_rows.get((version, split), num_shards)

    def split_sizes(self, version: DatasetVersion) -> Mapping[str, int]:
        """See Ledger."""
        with self._lock:
            return {split: size for (owner, split), size in self.split_rows.items() if owner == version}

    def shard(self, version: DatasetVersion, split: str, index: int) -> ShardRecord | None:
        """See Ledger."""
        with self._lock:
            return self.shard_rows.get((version, split, index))

    def record_shard(self, shard: ShardRecord, *, is_first: bool = False) -> RecordedShard:
        """See Ledger."""
        del is_first
        shard = bounded_shard(shard)
        key = (shard.dataset_version, shard.split, shard.index)
        with self._lock:
            stored = self.shard_rows.get(key)
            change, counter = counter_change(stored, shard), (shard.dataset_version, shard.split, shard.bucket)
            if not same_verdict(stored, shard):
                self.shard_rows[key] = shard
                self.counters[counter] += change
            return RecordedShard(replaced=stored, accepted=self.counters[counter] if change else None)

    def record_first_verdicts(self, shards: Sequence[ShardRecord]) -> int | None:
        """See Ledger."""
        with self._lock:
            if any((shard.dataset_version, shard.split, shard.index) in self.shard_rows for shard in shards):
                return None
            return [self.record_shard(shard).accepted for shard in shards][-1]

    def accepted_in_bucket(self, version: DatasetVersion, split: str, bucket: int) -> int:
        """See Ledger."""
        with self._lock:
            return self.counters[version, split, bucket]

    def shards(self, version: DatasetVersion) -> Iterator[ShardRecord]:
        """See Ledger."""
        with self._lock:
            return iter([row for row in self.shard_rows.values() if row.dataset_version == version])

    def shard_marks(self, version: DatasetVersion) -> list[ShardMark]:
        """See Ledger."""
        return [
            ShardMark(split=row.split, index=row.index, num_shards=row.num_shards, name=row.name, state=row.state)
            for row in self.shards(version)
        ]

    # -- versions -------------------------------------------------------------------------------------------
    def versions(self, dataset: str | None = None) -> Iterator[DatasetVersion]:
        """See Ledger."""
        with self._lock:
            return iter(sorted({version for version, _ in self.split_rows if dataset in (None, version.dataset)}))

    def add_generation(self, generation: Generation) -> bool:
        """See Ledger."""
        key = (generation.dataset_version, generation.number)
        with self._lock:
            if key in self.generation_rows:
                return False
            self.generation_rows[key] = bounded_generation(generation)
            return True

    def latest_generation(self, version: DatasetVersion) -> Generation | None:
        """See Ledger."""
        with self._lock:
            rows = (row for row in self.generation_rows.values() if row.dataset_version == version)
            return max(rows, key=lambda row: row.number, default=None)

    def latest_generations(self, dataset: str) -> Iterator[Generation]:
        """See Ledger."""
        with self._lock:
            versions = {version for version, _ in self.generation_rows if version.dataset == dataset}
            return iter([found for version in sorted(versions) if (found := self.latest_generation(version))])

    def generations(self, version: DatasetVersion) -> list[Generation]:
        """See Ledger."""
        with self._lock:
            rows = [row for row in self.generation_rows.values() if row.dataset_version == version]
        return sorted(rows, key=lambda row: row.number, reverse=True)

    def claim_auto_run(self, generation: Generation, run_id: str) -> str:
        """See Ledger."""
        key = (generation.dataset_version, generation.number)
        with self._lock:
            stored = self.generation_rows.get(key)
            if stored is None:
                raise NotFoundError(
                    f"generation {generation.number} of {generation.dataset_version} is not on record"
                )
            if stored.auto_run_id is None:
                stored = self.generation_rows[key] = replace(stored, auto_run_id=run_id)
            return stored.auto_run_id or run_id

    # -- runs -----------------------------------------------------------------------------------------------
    def add_run(self, run: RunRecord) -> bool:
        """See Ledger."""
        with self._lock:
            if run.run_id in self.run_rows:
                return False
            self.run_rows[run.run_id] = replace(bounded_run(run), revision=self._revision())
            return True

    def run(self, run_id: str) -> RunRecord | None:
        """See Ledger."""
        with self._lock:
            return self.run_rows.get(run_id)

    def save_run(self, run: RunRecord) -> RunRecord:
        """See Ledger."""
        with self._lock:
            stored = self.run_rows.get(run.run_id)
            if stored is None or stored.revision != run.revision:
                raise LedgerConflictError(f"run {run.run_id} was changed, or is not there: read it again")
            check_transition(run.run_id, stored.state, run.state)
            saved = self.run_rows[run.run_id] = replace(bounded_run(run), revision=self._revision())
            return saved

    def add_attempt(self, run: RunRecord, following: RunRecord) -> tuple[RunRecord, RunRecord]:
        """See Ledger."""
        with self._lock:
            if following.run_id in self.run_rows:
                raise LedgerConflictError(f"run {following.run_id} is there already: read again")
            following = bounded_run(following)
            saved = self.save_run(run)
            added = self.run_rows[following.run_id] = replace(following, revision=self._revision())
            return saved, added

    def unfinished_runs(self) -> Iterator[RunRecord]:
        """See Ledger."""
        with self._lock:
            return iter([row for _, row in sorted(self.run_rows.items()) if is_unfinished(row)])

    def runs(
        self,
        *,
        limit: int = 100,
        dataset: str | None = None,
        state: RunState | None = None,
        older_than: RunRecord | None = None,
    ) -> list[RunRecord]:
        """See Ledger."""

        def place(run: RunRecord) -> tuple[timedelta, str]:
            return _LATEST - run.created_at, run.run_id  # like the table, if two have the same time

        with self._lock:
            rows = [r for r in self.run_rows.values() if dataset in (None, r.dataset_version.dataset)]
        rows = [r for r in rows if state in (None, r.state)]
        rows = [r for r in rows if older_than is None or place(r) > place(older_than)]
        return sorted(rows, key=place)[:limit]

    # -- the run queue -------------------------------------------------------------------------------------
    def run_queue(self) -> RunQueue:
        """See Ledger."""
        with self._lock:
            return self.queue

    def change_run_queue(self, change: Callable[[RunQueue], RunQueue]) -> tuple[RunQueue, RunQueue]:
        """See Ledger."""
        with self._lock:
            before, after = self.queue, change(self.queue)
            if after != before:
                self.queue = after
            return before, after

    # -- outbox ---------------------------------------------------------------------------------------------
    def add_notification(self, notification: NotificationRecord) -> bool:
        """See Ledger."""
        key = (notification.subject, notification.key)
        with self._lock:
            if key in self.notification_rows:
                return False
            self.notification_rows[key] = replace(bounded_notification(notification), revision=self._revision())
            return True

    def save_notification(self, notification: NotificationRecord) -> NotificationRecord:
        """See Ledger."""
        key = (notification.subject, notification.key)
        with self._lock:
            stored = self.notification_rows.get(key)
            if stored is None or stored.revision != notification.revision:
                raise LedgerConflictError(
                    f"notification {notification.key} was changed, or is not there: read it again"
                )
            saved = self.notification_rows[key] = replace(
                bounded_notification(notification), revision=self._revision()
            )
            return saved

    def unsent_notifications(self) -> Iterator[NotificationRecord]:
        """See Ledger."""
        with self._lock:
            rows = [r for r in self.notification_rows.values() if not r.is_settled]
        return iter(sorted(rows, key=lambda row: row.created_at))

    def notifications(self, subject: str) -> list[NotificationRecord]:
        """See Ledger."""
        with self._lock:
            rows = [r for r in self.notification_rows.values() if r.subject == subject]
        return sorted(rows, key=lambda row: row.created_at)

    # -- history --------------------------------------------------------------------------------------------
    def add_history_entry(self, entry: HistoryEntry) -> None:
        """See Ledger."""
        with self._lock:
            self.history_rows[entry.subject].append(bounded_history_entry(entry))

    def history(self, subject: str) -> list[HistoryEntry]:
        """See Ledger."""
        with self._lock:
            return sorted(self.history_rows.get(subject, ()), key=lambda row: row.at)

    def history_below(self, prefix: str, *, limit: int) -> list[HistoryEntry]:
        """See Ledger."""
        with self._lock:
            rows = [row for subject in sorted(self.history_rows) for row in self.history_rows[subject]]
        below = [row for row in rows if row.subject.startswith(prefix)][:limit]
        return sorted(below, key=lambda row: row.at)

    # -- dead letters, counters and marks ---------------------------------------------------------------------
    def add_dead_letter(self, letter: DeadLetter) -> bool:
        """See DeadLetterLedger."""
        with self._lock:
            if letter.dead_letter_id in self.dead_letter_rows:
                return False
            stored = replace(bounded_dead_letter(letter), revision=self._revision())
            self.dead_letter_rows[letter.dead_letter_id] = stored
            return True

    def dead_letter(self, dead_letter_id: str) -> DeadLetter | None:
        """See DeadLetterLedger."""
        with self._lock:
            return self.dead_letter_rows.get(dead_letter_id)

    def save_dead_letter(self, letter: DeadLetter) -> DeadLetter:
        """See DeadLetterLedger."""
        with self._lock:
            stored = self.dead_letter_rows.get(letter.dead_letter_id)
            if stored is None or stored.revision != letter.revision:
                raise LedgerConflictError(
                    f"dead letter {letter.dead_letter_id} was changed, or is not there: read it again"
                )
            saved = replace(bounded_dead_letter(letter), revision=self._revision())
            self.dead_letter_rows[letter.dead_letter_id] = saved
            return saved

    def dead_letters(self, *, limit: int = 100) -> list[DeadLetter]:
        """See DeadLetterLedger."""
        with self._lock:
            return sorted(self.dead_letter_rows.values(), key=dead_letter_order)[:limit]

    def count(self, name: str, key: str) -> None:
        """See Notes."""
        with self._lock:
            self.counter_rows[name][key] += 1

    def mark(self, name: str) -> str | None:
        """See Notes."""
        with self._lock:
            return self.mark_rows.get(name)

    def set_mark(self, name: str, text: str) -> None:
        """See Notes."""
        with self._lock:
            self.mark_rows[name] = text

    def change_mark(self, name: str, before: str | None, after: str) -> bool:
        """See Notes."""
        with self._lock:
            is_same = self.mark_rows.get(name) == before
            if is_same:
                self.mark_rows[name] = after
            return is_same

    def _revision(self) -> str:
        return str(next(self._revisions))


class MemoryDeadLetterSource:
    """Implements DeadLetterSource; ``lying`` has the payloads that were given up and not yet moved."""

    def __init__(self, *lying: Undelivered) -> None:
        self.lying = list(lying)

    def undelivered(self, *, limit: int) -> Iterator[Undelivered]:
        """See DeadLetterSource."""
        for one in self.lying[:limit]:
            yield one
            self.lying.remove(one)
