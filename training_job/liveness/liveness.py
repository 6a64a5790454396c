"""Decide which ranks are alive and progressing, and which one to name if not. Without network and threads.

Every rank counts the places that it passes in the training loop, and all ranks pass the same places. If no rank
progresses, all others wait for the ranks with the lowest count.

If the ranks cannot connect at the start, each leaves a mark, a file, in a folder that all nodes share, because any
other communication needs a connection. A rank that is dead, stopped or was never started leaves no mark.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from shared.output_files import OutputFileError, put_bytes
from training_job.machines import launched_local_size
from training_job.process_environment import launched_rank, launched_world_size, run_id

DAMAGE_PLACE = "looking for damage"
CONTENTS_PLACE = "checking contents"
SLOW_PLACES = frozenset(
    {"start", "first step", "first evaluation", "checkpoint", CONTENTS_PLACE, DAMAGE_PLACE, "export", "end"}
)
"""Places in which a compiler or a slow disk may take long."""
_SLOW_PLACE_FACTOR = 10
_MARKING_S = 5.0
"""How long a rank waits for the marks of the others: ranks start within seconds of each other."""
_CACHE_VARIABLE = "DATASET_MOUNT_ATTRIBUTE_CACHE_TTL"
"""Azure ML's setting of how long a mount caches attributes; the default is not documented."""
_LAUNCH_VARIABLE = "PMIX_NAMESPACE"
"""Open MPI's name for one launch, the same on all its ranks."""


@dataclass(frozen=True, kw_only=True)
class Heartbeat:
    """The place of a rank in the training loop, as it reports it."""

    rank: int
    count: int
    """Places passed so far."""
    place: str
    """The place it is in: ``reading``, ``step`` …"""
    step: int
    """Optimizer updates finished."""
    host: str
    process_id: int

    @property
    def who(self) -> str:
        """The rank as a message names it."""
        return f"rank {self.rank} (host {self.host}, process {self.process_id})"


@dataclass(frozen=True, kw_only=True)
class _Received:
    heartbeat: Heartbeat
    at: float
    moved_at: float


class Liveness:
    """Collects heartbeats; names ranks that are missing or stuck."""

    def __init__(
        self, timeout_s: float, awaited: Iterable[int] = (), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._timeout_s = timeout_s
        self._clock = clock
        self._received: dict[int, _Received] = {}
        self._awaited = set(awaited)
        """Ranks that have not sent their first heartbeat."""

    def receive(self, heartbeat: Heartbeat) -> None:
        """Record a heartbeat."""
        self._awaited.discard(heartbeat.rank)
        now, before = self._clock(), self._received.get(heartbeat.rank)
        moved = before is None or before.heartbeat.count != heartbeat.count
        self._received[heartbeat.rank] = _Received(
            heartbeat=heartbeat, at=now, moved_at=now if before is None or moved else before.moved_at
        )

    def verdict(self) -> str | None:
        """Return the error text that ends the training; None if there is no problem."""
        if lost := self.lost():
            return lost
        if self._stand_still(self._clock(), self._patience_s):
            return _standstill({rank: r.heartbeat for rank, r in self._received.items()}, self._timeout_s)
        return None

    def lost(self) -> str | None:
        """Return the error text about a rank that is silent, or never sent a heartbeat; None if there is none."""
        now = self._clock()
        silent = [r for r in self._received.values() if now - r.at > self._timeout_s]
        if silent:
            return _silence(min(silent, key=lambda r: r.heartbeat.rank), now)
        if self._awaited and self._stand_still(now, lambda _: self._timeout_s):
            return _absence(self._awaited, [r.heartbeat for r in self._received.values()], self._timeout_s)
        return None

    def _stand_still(self, now: float, patience_s: Callable[[Heartbeat], float]) -> bool:
        received = self._received.values()
        return bool(received) and all(now - r.moved_at > patience_s(r.heartbeat) for r in received)

    def _patience_s(self, heartbeat: Heartbeat) -> float:
        return self._timeout_s * (_SLOW_PLACE_FACTOR if heartbeat.place in SLOW_PLACES else 1)


def _silence(received: _Received, now: float) -> str:
    heartbeat = received.heartbeat
    return (
        f"No heartbeat came from {heartbeat.who} for {now - received.at:.0f} s; it was in {heartbeat.place!r} "
        f"after step {heartbeat.step}. "
        f"The process is dead or stopped, or its node cannot be reached: look at that node's log."
    )


def _absence(awaited: Iterable[int], others: Iterable[Heartbeat], timeout_s: float) -> str:
    # Only if the others stand still too: a rank that takes part in steps is alive, even if no datagram arrives.
    missing, places = sorted(awaited), sorted({heartbeat.place for heartbeat in others})
    return (
        f"No heartbeat ever came from rank{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing))} since the "
        f"ranks met, and the others have stood still for {timeout_s:g} s, in {' and '.join(map(repr, places))}. "
        f"The process is dead or stopped, or UDP from its node to the root's does not pass: look at that node's log."
    )


def _standstill(heartbeats: Mapping[int, Heartbeat], timeout_s: float) -> str:
    lowest = min(h.count for h in heartbeats.values())
    behind = [h for _, h in sorted(heartbeats.items()) if h.count == lowest]
    if len(behind) == len(heartbeats):
        return (
            f"All {len(heartbeats)} ranks have been in {behind[0].place!r} after step {behind[0].step} for more than "
            f"{timeout_s:g} s. They wait for each other: look at the network between the nodes, or at the storage."
        )
    return (
        f"{behind[0].who} has been in {behind[0].place!r} after step {behind[0].step} for more than {timeout_s:g} s "
        f"while others wait for it ({len(behind)} of {len(heartbeats)} ranks are behind). It is alive but stuck."
    )


@dataclass(frozen=True, kw_only=True)
class Rendezvous:
    """A folder that all ranks of one launch see; marks of other nodes may appear late."""

    folder: Path
    """For this launch only, so that marks of an earlier one do not count."""
    rank: int
    world_size: int
    sees_all: bool
    """Whether the marks of all ranks are seen at once: on one node, or if the mount caches no attributes."""

    @classmethod
    def under(cls, folder: Path) -> Rendezvous:
        """Return this launch's rendezvous, in a subfolder of one that all nodes share."""
        launch = os.environ.get(_LAUNCH_VARIABLE, run_id())
        world_size = launched_world_size()
        return cls(
            folder=folder / f"rendezvous-{launch}",
            rank=launched_rank(),
            world_size=world_size,
            sees_all=launched_local_size() == world_size or os.environ.get(_CACHE_VARIABLE) == "0",
        )

    def verdict(self, deadline_s: float) -> str:
        """Leave this rank's mark, wait for those of the others, return the paragraph that names missing ranks."""
        intro = f"The ranks have not met within {deadline_s:g} s."
        try:
            present = self._present()
        except (OSError, OutputFileError) as error:
            return f"{intro} Which ranks are missing could not be determined in {self.folder}: {error}"
        absent = [rank for rank in range(self.world_size) if rank not in present]
        if not absent:
            return (
                f"{intro} All {self.world_size} are alive, but cannot reach each other: look at the network "
                f"between the nodes."
            )
        missing = f"Of {self.world_size}, rank{'s' if len(absent) > 1 else ''} {', '.join(map(str, absent))}"
        if self.sees_all:
            return f"{intro} {missing} gave no sign: dead, stopped or not started. Look at the log of each."
        return (
            f"{intro} {missing} gave no sign that this node sees: dead, stopped or not started, or on another node "
            f"and not visible here yet. Look at the log of each."
        )

    def _present(self) -> set[int]:
        put_bytes(b"", self.folder / str(self.rank))
        time.sleep(_MARKING_S)
        return {int(mark.name) for mark in self.folder.iterdir() if mark.name.isdecimal()}
