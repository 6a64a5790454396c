"""The owner of the data: overwrites, replaces and deletes uploaded shards while runs wait for them and read them."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum, auto

from function_app.domain.records import RunRecord
from function_app.domain.run_states import SETTLED, RunState

MAX_INCIDENTS = 3
HURRY, PATIENCE = 0.4, 0.05
"""Chance at each look that a change is made whose moment has come, and that one is made for which a run may wait."""
Contents = Mapping[str, bytes | None]
"""Shard → its new content; None deletes it."""


class Moment(IntEnum):
    """The earliest moment of a change, by the version's newest run."""

    UPLOADED = 0
    QUEUED = 1
    TRAINING = 2
    ENDED = 3


class Step(Enum):
    """What is done to a shard."""

    GONE = auto()
    SAME = auto()
    """Written with the bytes that it had before the incident."""
    OTHER = auto()
    """Written with other labels; the size stays."""


INCIDENTS: Mapping[str, tuple[Step, ...]] = {
    "replaced": (Step.OTHER,),
    "replaced and put back": (Step.OTHER, Step.SAME),
    "written again": (Step.SAME,),
    "deleted and put back": (Step.GONE, Step.SAME),
    "deleted, then replaced": (Step.GONE, Step.OTHER),
    "all replaced": (Step.OTHER,),
    "deleted": (Step.GONE,),
}
"""What happens to one shard, or to all of a version."""
LAST_ONLY = "deleted"
"""It leaves the version without a shard, so it is the last one."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One write or deletion, of one shard or of all."""

    moment: Moment
    contents: Contents


def draw_changes(dice: random.Random, shards: Iterable[str], content: Callable[[str, int], bytes]) -> list[Change]:
    """Draw what happens to a version, in order; ``content`` returns a shard's n-th content."""
    numbers, changes = dict.fromkeys(shards, 0), list[Change]()
    count = dice.randint(1, MAX_INCIDENTS)
    for left in reversed(range(count)):
        what = dice.choice([name for name in INCIDENTS if left == 0 or name != LAST_ONLY])
        names = list(numbers) if what == "all replaced" else [dice.choice(list(numbers))]
        moment = dice.choice(list(Moment))
        for step in INCIDENTS[what]:
            shifted = {name: numbers[name] + (step is Step.OTHER) for name in names}
            written = {name: None if step is Step.GONE else content(name, shifted[name]) for name in names}
            changes.append(Change(moment=moment, contents=written))
        if INCIDENTS[what][-1] is Step.OTHER:
            numbers.update(shifted)
    return changes


@dataclass(kw_only=True)
class DataOwner:
    """Makes the changes of all versions, each in its order and none before its shards are uploaded."""

    changes: Mapping[str, Iterable[Change]]
    """Dataset → its changes."""
    write: Callable[[str, str, bytes | None], object]
    """Takes dataset, shard and content; None deletes the shard."""
    dice: random.Random
    seal: Callable[[str], object] = lambda _: None
    """Called after each change of a dataset."""
    uploaded: set[tuple[str, str]] = field(default_factory=set)
    made: Counter[str] = field(default_factory=Counter)
    """Number of changes by the state of the version's newest run."""
    left: dict[str, deque[Change]] = field(init=False)

    def __post_init__(self) -> None:
        self.left = {dataset: deque(changes) for dataset, changes in self.changes.items()}

    @property
    def is_done(self) -> bool:
        """Whether no change is left."""
        return not any(self.left.values())

    def is_done_with(self, dataset: str) -> bool:
        """Whether a dataset does not change any more."""
        return not self.left.get(dataset)

    def act(self, runs: Iterable[RunRecord], *, is_calm: bool = False) -> None:
        """Make the changes whose moment has come, by chance not all.

        ``is_calm``: nothing else delays a run, so one that does not get on may wait for the next change.
        """
        newest = {run.dataset_version.dataset: run for run in sorted(runs, key=lambda run: run.created_at)}
        for dataset, changes in self.left.items():
            run = newest.get(dataset)
            may_wait = is_calm and (run is None or run.state is RunState.PLANNED)
            chance = HURRY if changes and self._is_due(dataset, changes[0], run) else PATIENCE * may_wait
            if changes and self.dice.random() < chance:
                for name, content in changes.popleft().contents.items():
                    self.write(dataset, name, content)
                self.seal(dataset)
                self.made[state_in_words(run)] += 1

    def _is_due(self, dataset: str, change: Change, run: RunRecord | None) -> bool:
        is_uploaded = all((dataset, name) in self.uploaded for name in change.contents)
        return is_uploaded and change.moment <= moment_of(run)


def moment_of(run: RunRecord | None) -> Moment:
    """Return which changes may be made while this is a version's newest run."""
    if run is None:
        return Moment.UPLOADED
    if run.state in SETTLED or run.state is RunState.COMPLETED:
        return Moment.ENDED
    return Moment.TRAINING if run.state is RunState.RUNNING else Moment.QUEUED


def state_in_words(run: RunRecord | None) -> str:
    """Return what a version's newest run was doing when its data changed."""
    words = {
        Moment.UPLOADED: "before a run",
        Moment.QUEUED: "while a run waited",
        Moment.TRAINING: "while a run trained",
        Moment.ENDED: "after a run",
    }
    return words[moment_of(run)]


def last_contents(first: Mapping[str, bytes], changes: Iterable[Change]) -> dict[str, bytes]:
    """Return a version's shards after all changes, without those that were deleted."""
    last: dict[str, bytes | None] = dict(first)
    for change in changes:
        last.update(change.contents)
    return {name: content for name, content in last.items() if content is not None}
