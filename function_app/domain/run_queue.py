"""The run queue: which runs may run now, which wait for their turn, which lost their place. Pure functions.

- Each pipeline has at most one active run, and the deployment has a limit over all pipelines.
- Behind it one run of the same pipeline is queued, however many are requested: the newest generation wins, otherwise
  the latest request.
- The oldest place in line is admitted first. A newer request takes over the place of the one that it replaces, so
  that a pipeline whose data keep changing is not overtaken forever.

The ledger keeps the queue in one row, so that each change is one compare-and-swap.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from function_app.domain.records import RunRecord


@dataclass(frozen=True, kw_only=True)
class QueueEntry:
    """A logical run that is running or queued. Its attempts share one entry."""

    logical_run: str
    pipeline: str
    dataset: str
    version: str
    generation: int
    asked_at: datetime
    waiting_since: datetime
    """Since when this place in line is taken, by this run or by one that it replaced."""

    @classmethod
    def of(cls, run: RunRecord) -> QueueEntry:
        """Return the entry of a run that asks to be admitted."""
        return cls(
            logical_run=run.logical_run,
            pipeline=run.pipeline,
            dataset=run.dataset_version.dataset,
            version=run.dataset_version.version,
            generation=run.generation,
            asked_at=run.created_at,
            waiting_since=run.created_at,
        )

    @property
    def first_run_id(self) -> str:
        """The first attempt's run id, which is its job's name."""
        return f"{self.logical_run}-a1"


@dataclass(frozen=True, kw_only=True)
class Dropped:
    """A run that lost its place and whose row does not say so yet."""

    logical_run: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class RunQueue:
    """All runs that are running or queued."""

    running: tuple[QueueEntry, ...] = ()
    """At most one for each pipeline."""
    queued: tuple[QueueEntry, ...] = ()
    """At most one for each pipeline."""
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

    def running_of(self, pipeline: str) -> QueueEntry | None:
        """Return the active run of a pipeline."""
        return next((entry for entry in self.running if entry.pipeline == pipeline), None)


def enqueue(queue: RunQueue, entry: QueueEntry, *, limit: int) -> RunQueue:
    """Return the queue after a run has asked to be admitted; asking again changes nothing."""
    name = entry.logical_run
    if not (queue.is_running(name) or queue.is_queued(name) or queue.is_dropped(name)):
        queue = _with_queued(queue, entry)
    return admit(queue, limit=limit)


def release(
    queue: RunQueue, logical_run: str, *, limit: int, drop_queued_before: datetime | None = None, reason: str = ""
) -> RunQueue:
    """Return the queue after a run has ended: its entry is gone, and what waited is admitted where it may be.

    ``drop_queued_before`` also drops, with the reason, what was queued behind the running run until then.
    """
    ended = next((entry for entry in queue.running if entry.logical_run == logical_run), None)
    queue = replace(queue, running=_without(queue.running, logical_run), queued=_without(queue.queued, logical_run))
    if ended is not None and drop_queued_before is not None:
        for entry in queue.queued:
            if entry.pipeline == ended.pipeline and entry.asked_at <= drop_queued_before:
                queue = _dropping(queue, entry, reason)
    return admit(queue, limit=limit)


def admit(queue: RunQueue, *, limit: int) -> RunQueue:
    """Return the queue with every run admitted that may be, the oldest place in line first."""
    for entry in sorted(queue.queued, key=lambda entry: (entry.waiting_since, entry.logical_run)):
        if len(queue.running) < limit and queue.running_of(entry.pipeline) is None:
            queue = replace(queue, running=(*queue.running, entry), queued=_without(queue.queued, entry.logical_run))
    return queue


def forget_dropped(queue: RunQueue, logical_runs: Iterable[str]) -> RunQueue:
    """Return the queue without the dropped runs whose rows say so now."""
    names = set(logical_runs)
    return replace(queue, dropped=tuple(one for one in queue.dropped if one.logical_run not in names))


def _with_queued(queue: RunQueue, entry: QueueEntry) -> RunQueue:
    rival = next((other for other in queue.queued if other.pipeline == entry.pipeline), None)
    if rival is None:
        return replace(queue, queued=(*queue.queued, entry))
    winner, loser = (entry, rival) if _is_newer(entry, rival) else (rival, entry)
    kept = replace(winner, waiting_since=min(winner.waiting_since, loser.waiting_since))
    queue = replace(queue, queued=(*_without(queue.queued, rival.logical_run), kept))
    return _dropping(queue, loser, _why_replaced(winner, loser))


def _is_newer(entry: QueueEntry, other: QueueEntry) -> bool:
    if _same_version(entry, other) and entry.generation != other.generation:
        return entry.generation > other.generation
    return (entry.asked_at, entry.logical_run) > (other.asked_at, other.logical_run)


def _why_replaced(winner: QueueEntry, loser: QueueEntry) -> str:
    if _same_version(winner, loser) and winner.generation != loser.generation:
        return f"superseded by generation {winner.generation} while it was queued: {winner.first_run_id}"
    return f"a later request took its place while it was queued: {winner.first_run_id}"


def _same_version(one: QueueEntry, other: QueueEntry) -> bool:
    return (one.dataset, one.version) == (other.dataset, other.version)


def _dropping(queue: RunQueue, entry: QueueEntry, reason: str) -> RunQueue:
    dropped = Dropped(logical_run=entry.logical_run, reason=reason)
    return replace(queue, queued=_without(queue.queued, entry.logical_run), dropped=(*queue.dropped, dropped))


def _without(entries: tuple[QueueEntry, ...], logical_run: str) -> tuple[QueueEntry, ...]:
    return tuple(entry for entry in entries if entry.logical_run != logical_run)
