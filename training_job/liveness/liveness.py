"""Which ranks are alive and moving, and which one to name when they are not. No network, no threads.

Every rank counts the places that it passes in the training loop, and all ranks pass the same places. When nothing
moves, the ranks with the lowest count are those that all others wait for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

DAMAGE_PLACE = "looking for damage"
SLOW_PLACES = frozenset({"start", "first step", "first evaluation", "checkpoint", DAMAGE_PLACE, "export", "end"})
"""Places in which a compiler or a slow disk may take long."""
_SLOW_PLACE_FACTOR = 10


@dataclass(frozen=True, kw_only=True)
class Heartbeat:
    """Where a rank is, by its own account."""

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
        """Take a heartbeat."""
        self._awaited.discard(heartbeat.rank)
        now, before = self._clock(), self._received.get(heartbeat.rank)
        moved = before is None or before.heartbeat.count != heartbeat.count
        self._received[heartbeat.rank] = _Received(
            heartbeat=heartbeat, at=now, moved_at=now if before is None or moved else before.moved_at
        )

    def verdict(self) -> str | None:
        """Return the paragraph that ends the training; None while all is well."""
        now = self._clock()
        silent = [r for r in self._received.values() if now - r.at > self._timeout_s]
        if silent:
            return _silence(min(silent, key=lambda r: r.heartbeat.rank), now)
        if self._awaited and self._stand_still(now, lambda _: self._timeout_s):
            return _absence(self._awaited, [r.heartbeat for r in self._received.values()], self._timeout_s)
        if self._stand_still(now, self._patience_s):
            return _standstill({rank: r.heartbeat for rank, r in self._received.items()}, self._timeout_s)
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
    # Only once the others stand still too: a rank that takes part in steps is alive, even where no datagram passes.
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
