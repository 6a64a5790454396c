"""Who was heard of when, and who is to be named when nothing goes on any more. No network, no threads.

Every rank counts the places it passes in the training loop; all ranks pass the same places. When nothing
moves, the ranks with the lowest count are those that all others wait for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

DAMAGE_PLACE = "looking for damage"
ROOMY = frozenset({"start", "first step", "first evaluation", "checkpoint", DAMAGE_PLACE, "export", "end"})
"""Places that take as long as a compiler or a slow disk does."""
_ROOMY_FACTOR = 10


@dataclass(frozen=True, kw_only=True)
class Beat:
    """Where a rank says it is."""

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
class _Heard:
    beat: Beat
    at: float
    moved_at: float


class RollCall:
    """Collects beats; says who is missing."""

    def __init__(
        self, timeout_s: float, awaited: Iterable[int] = (), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._timeout_s = timeout_s
        self._clock = clock
        self._heard: dict[int, _Heard] = {}
        self._awaited = set(awaited)
        """Ranks that should beat and have not yet."""

    def heard(self, beat: Beat) -> None:
        """Note a beat."""
        self._awaited.discard(beat.rank)
        now, before = self._clock(), self._heard.get(beat.rank)
        moved = before is None or before.beat.count != beat.count
        self._heard[beat.rank] = _Heard(
            beat=beat, at=now, moved_at=now if before is None or moved else before.moved_at
        )

    def verdict(self) -> str | None:
        """Return the paragraph that ends the training; None while all is well."""
        now = self._clock()
        silent = [h for h in self._heard.values() if now - h.at > self._timeout_s]
        if silent:
            return _silence(min(silent, key=lambda h: h.beat.rank), now)
        if self._awaited and self._stand_still(now, lambda _: self._timeout_s):
            return _absence(self._awaited, [h.beat for h in self._heard.values()], self._timeout_s)
        if self._stand_still(now, self._patience_s):
            return _standstill({rank: h.beat for rank, h in self._heard.items()}, self._timeout_s)
        return None

    def _stand_still(self, now: float, patience_s: Callable[[Beat], float]) -> bool:
        heard = self._heard.values()
        return bool(heard) and all(now - h.moved_at > patience_s(h.beat) for h in heard)

    def _patience_s(self, beat: Beat) -> float:
        return self._timeout_s * (_ROOMY_FACTOR if beat.place in ROOMY else 1)


def _silence(heard: _Heard, now: float) -> str:
    beat = heard.beat
    return (
        f"Nothing was heard of {beat.who} for {now - heard.at:.0f} s; it was in {beat.place!r} "
        f"after step {beat.step}. "
        f"The process is dead or stopped, or its node cannot be reached: look at that node's log."
    )


def _absence(awaited: Iterable[int], others: Iterable[Beat], timeout_s: float) -> str:
    # Only where the others stand still, too: a rank that takes part in steps lives, also where no datagram passes.
    missing, places = sorted(awaited), sorted({beat.place for beat in others})
    return (
        f"Nothing was ever heard of rank{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing))} since the "
        f"ranks met, and the others have stood still for {timeout_s:g} s, in {' and '.join(map(repr, places))}. "
        f"The process is dead or stopped, or UDP from its node to the root's does not pass: look at that node's log."
    )


def _standstill(beats: Mapping[int, Beat], timeout_s: float) -> str:
    lowest = min(b.count for b in beats.values())
    behind = [b for _, b in sorted(beats.items()) if b.count == lowest]
    if len(behind) == len(beats):
        return (
            f"All {len(beats)} ranks have been in {behind[0].place!r} after step {behind[0].step} for more than "
            f"{timeout_s:g} s. They wait for each other: look at the network between the nodes, or at the storage."
        )
    return (
        f"{behind[0].who} has been in {behind[0].place!r} after step {behind[0].step} for more than {timeout_s:g} s "
        f"while others wait for it ({len(behind)} of {len(beats)} ranks are behind). It is alive but stuck."
    )
