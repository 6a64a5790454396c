"""The run queue: runs that may run now, wait for their turn, or lost their place. Pure functions.

- Each pipeline has at most one active run, and the deployment has a limit over all pipelines.
- The pipeline's other versions wait in the order of their closing. Each version has one waiting run: the run on its
  newest generation or, within a generation, the latest request. With ``when_busy: latest`` only the newest version
  waits.
- The oldest place in line is admitted first. A run takes over the place of the run that it replaces, so that a
  version or pipeline whose data keep changing is not overtaken forever.

The ledger keeps the queue in one row, so that each change is one compare-and-swap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from typing import Any

from function_app.domain.records import RunRecord

MAX_QUEUED = 1000
"""Maximum number of waiting runs in the row; later sweeps add the others to the queue."""
MAX_ROW_CHARS = 480_000
"""Maximum characters of all entries. A row of an Azure table has at most 1 MiB, with two bytes per character."""
_ENTRY_CHARS = 250
"""Characters of an entry in addition to its names: times, member names and punctuation."""


@dataclass(frozen=True, kw_only=True)
class QueueEntry:
    """A logical run that is running or queued. Its attempts share one entry."""

    logical_run: str
    pipeline: str
    dataset: str
    version: str
    generation: int
    asked_at: datetime
    """When the version closed, or when a person requested the run."""
    waiting_since: datetime
    """When this place in line was taken, by this run or by a run that it replaced."""
    continues: bool = False
    """Whether an earlier attempt, or an earlier run of its option sweep, has trained. The run then goes first, and no
    other version takes its place."""

    @classmethod
    def of(cls, run: RunRecord) -> QueueEntry:
        """Return the entry of a run that requests admission."""
        return cls(
            logical_run=run.logical_run,
            pipeline=run.pipeline,
            dataset=run.dataset_version.dataset,
            version=run.dataset_version.version,
            generation=run.generation,
            asked_at=run.asked_at or run.created_at,
            waiting_since=run.asked_at or run.created_at,
            continues=run.attempt > 1 or (run.sweep_number or 1) > 1,
        )

    @property
    def first_run_id(self) -> str:
        """The first attempt's run id, which is also its job's name."""
        return f"{self.logical_run}-a1"

    @property
    def place(self) -> tuple[bool, datetime, str]:
        """The sort key of the waiting line."""
        return not self.continues, self.waiting_since, self.logical_run


@dataclass(frozen=True, kw_only=True)
class Dropped:
    """A run that lost its place, until its row records that."""

    logical_run: str
    reason: str
    gives_up_version: bool = False
    """Whether its version is given up, because a run of another version has taken its place."""


@dataclass(frozen=True, kw_only=True)
class QueueRules:
    """Limits on the runs that may run and may wait."""

    limit: int
    """Maximum number of active runs over all pipelines."""
    latest: frozenset[str] = frozenset()
    """Pipelines of which only the newest version waits."""


@dataclass(frozen=True, kw_only=True)
class RunQueue:
    """All runs that are running or queued."""

    running: tuple[QueueEntry, ...] = ()
    """At most one run for each pipeline."""
    queued: tuple[QueueEntry, ...] = ()
    """At most one run for each version; with ``when_busy: latest``, for each pipeline."""
    dropped: tuple[Dropped, ...] = ()

    def is_running(self, logical_run: str) -> bool:
        """Whether a run was admitted."""
        return any(entry.logical_run == logical_run for entry in self.running)

    def is_queued(self, logical_run: str) -> bool:
        """Whether a run waits for its turn."""
        return any(entry.logical_run == logical_run for entry in self.queued)

    def is_dropped(self, logical_run: str) -> bool:
        """Whether a run lost its place."""
        return any(entry.logical_run == logical_run for entry in self.dropped)

    def knows(self, logical_run: str) -> bool:
        """Whether a run is running, waits or lost its place."""
        return any(part(logical_run) for part in (self.is_running, self.is_queued, self.is_dropped))

    def running_of(self, pipeline: str) -> QueueEntry | None:
        """Return the active run of a pipeline."""
        return next((entry for entry in self.running if entry.pipeline == pipeline), None)

    def waiting(self, logical_run: str) -> QueueEntry | None:
        """Return the entry of a waiting run."""
        return next((entry for entry in self.queued if entry.logical_run == logical_run), None)

    def num_before(self, entry: QueueEntry) -> int:
        """Return how many runs are ahead of a waiting run: of its pipeline, and of others that may take its place.

        Two pipelines that both have an active run do not compete: each waits for its own run.
        """
        active = {one.pipeline for one in self.running}
        return sum(
            other.place < entry.place
            and (other.pipeline == entry.pipeline or not {other.pipeline, entry.pipeline} <= active)
            for other in self.queued
        )


def enqueue(queue: RunQueue, entry: QueueEntry, rules: QueueRules) -> RunQueue:
    """Return the queue after a run has requested admission; a repeated request changes nothing."""
    if not queue.knows(entry.logical_run):
        queue = replace(queue, queued=(*queue.queued, entry))
    return admit(queue, rules)


def release(
    queue: RunQueue,
    logical_run: str,
    rules: QueueRules,
    *,
    drop_queued_before: datetime | None = None,
    reason: str = "",
) -> RunQueue:
    """Return the queue after a run has ended: without its entry, and with the next runs admitted.

    ``drop_queued_before`` also drops, with ``reason``, runs that waited for the ended run and were requested until
    then: runs of the same version, or of any version if only the newest one waits.
    """
    ended = next((entry for entry in queue.running if entry.logical_run == logical_run), None)
    queue = replace(queue, running=_without(queue.running, logical_run), queued=_without(queue.queued, logical_run))
    if ended is not None and drop_queued_before is not None:
        for entry in queue.queued:
            follows = _version(entry) == _version(ended) or (
                entry.pipeline == ended.pipeline and ended.pipeline in rules.latest
            )
            if follows and not entry.continues and entry.asked_at <= drop_queued_before:
                queue = _dropping(queue, entry, reason, gives_up_version=True)
    return admit(queue, rules)


def admit(queue: RunQueue, rules: QueueRules) -> RunQueue:
    """Admit every run that the rules allow, the oldest place in line first."""
    queue = _fitting(_without_rivals(queue, rules))  # before an entry becomes active
    for entry in sorted(queue.queued, key=lambda entry: entry.place):
        if len(queue.running) < rules.limit and queue.running_of(entry.pipeline) is None:
            queue = replace(queue, running=(*queue.running, entry), queued=_without(queue.queued, entry.logical_run))
    return _bounded(queue)


def forget_dropped(queue: RunQueue, logical_runs: Iterable[str]) -> RunQueue:
    """Return the queue without dropped runs whose rows now record that."""
    names = set(logical_runs)
    return replace(queue, dropped=tuple(one for one in queue.dropped if one.logical_run not in names))


def _without_rivals(queue: RunQueue, rules: QueueRules) -> RunQueue:
    """Keep only the newest waiting run of a version, or of a pipeline of which only the newest version waits."""
    waiting = [entry for entry in queue.queued if not entry.continues]
    queue = _keep_newest(
        queue, waiting, _version, lambda entry: (entry.generation, entry.asked_at, entry.logical_run)
    )
    waiting = [entry for entry in queue.queued if not entry.continues and entry.pipeline in rules.latest]
    return _keep_newest(queue, waiting, _pipeline, lambda entry: (entry.asked_at, entry.logical_run))


def _keep_newest(
    queue: RunQueue,
    waiting: list[QueueEntry],
    group: Callable[[QueueEntry], tuple[str, ...]],
    age: Callable[[QueueEntry], Any],
) -> RunQueue:
    for _, found in groupby(sorted(waiting, key=group), key=group):
        *losers, winner = sorted(found, key=age)
        for loser in losers:
            same = _version(winner) == _version(loser)
            queue = _dropping(queue, loser, _why_replaced(winner, loser), gives_up_version=not same)
        if losers:
            since = min(entry.waiting_since for entry in (winner, *losers))
            kept = replace(winner, waiting_since=since)
            queue = replace(queue, queued=(*_without(queue.queued, winner.logical_run), kept))
    return queue


def _why_replaced(winner: QueueEntry, loser: QueueEntry) -> str:
    if _version(winner) != _version(loser):
        name = f"{winner.dataset}/{winner.version}"
        return f"{name} is newer and took its place in line (when_busy: latest): {winner.first_run_id}"
    if winner.generation != loser.generation:
        return f"superseded by generation {winner.generation} while it was queued: {winner.first_run_id}"
    return f"a later request took its place while it was queued: {winner.first_run_id}"


def _pipeline(entry: QueueEntry) -> tuple[str, ...]:
    return (entry.pipeline,)


def _version(entry: QueueEntry) -> tuple[str, ...]:
    return (entry.pipeline, entry.dataset, entry.version)


def _bounded(queue: RunQueue) -> RunQueue:
    """Limit the number of waiting runs: remove the last run of the longest line, which a later sweep adds again."""
    while len(queue.queued) > MAX_QUEUED:
        queue = replace(queue, queued=_without(queue.queued, _last(queue).logical_run))
    return queue


def _fitting(queue: RunQueue) -> RunQueue:
    """Limit the row's size in the same way, because Azure would refuse changes that make it too large."""
    chars = sum(map(_chars, (*queue.running, *queue.queued))) + sum(map(_chars, queue.dropped))
    while chars > MAX_ROW_CHARS and queue.queued:
        last = _last(queue)
        queue, chars = replace(queue, queued=_without(queue.queued, last.logical_run)), chars - _chars(last)
    return queue


def _last(queue: RunQueue) -> QueueEntry:
    """Return the last run of the pipeline with the longest line."""
    lengths = Counter(entry.pipeline for entry in queue.queued)
    return max(queue.queued, key=lambda entry: (lengths[entry.pipeline], entry.place))


def _chars(entry: QueueEntry | Dropped) -> int:
    names = (entry.reason,) if isinstance(entry, Dropped) else (entry.pipeline, entry.dataset, entry.version)
    return _ENTRY_CHARS + len(entry.logical_run) + sum(map(len, names))


def _dropping(queue: RunQueue, entry: QueueEntry, reason: str, *, gives_up_version: bool) -> RunQueue:
    dropped = Dropped(logical_run=entry.logical_run, reason=reason, gives_up_version=gives_up_version)
    return replace(queue, queued=_without(queue.queued, entry.logical_run), dropped=(*queue.dropped, dropped))


def _without(entries: tuple[QueueEntry, ...], logical_run: str) -> tuple[QueueEntry, ...]:
    return tuple(entry for entry in entries if entry.logical_run != logical_run)
