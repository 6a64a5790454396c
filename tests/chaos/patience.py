"""How long a storm is waited for: by the work that was done meanwhile, which takes longer on a busy machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

LONGEST_SWEEP_S = 900.0
"""Without the end of a sweep for so long, nothing is done any more."""
TURNS = 50
"""How often as much may be done as was left at most: what does more than that goes round in circles."""


@dataclass(kw_only=True)
class Patience:
    """Ends when too many sweeps have ended in vain, or none ends any more."""

    ended: Callable[[], int]
    """Returns the number of sweeps that have ended."""
    sweeps: int
    """How many may end in vain."""
    clock: Callable[[], float] = time.monotonic
    _begun_with: int = field(init=False)
    _last: int = field(init=False)
    _last_at: float = field(init=False)
    _least: int | None = None
    _most: int = 0
    _done: int | None = None
    _done_before: int = 0

    def __post_init__(self) -> None:
        self._begun_with = self._last = self.ended()
        self._last_at = self.clock()

    def is_over(self, left: int, done: int = 0) -> bool:
        """Whether to give up. The count of sweeps begins again with progress.

        Progress is that fewer things are ``left`` than ever, or that more is ``done`` than before: what is left may
        first get more, as one thing leads to others.
        """
        ended = self.ended()
        if ended != self._last:
            self._last, self._last_at = ended, self.clock()
        if self._done is None:
            self._done = self._done_before = done
        self._most = max(self._most, left)
        is_more_done = self._done < done <= self._done_before + TURNS * self._most
        if is_more_done or self._least is None or left < self._least:
            self._begun_with = ended
        self._done = done
        self._least = left if self._least is None else min(left, self._least)
        return ended - self._begun_with > self.sweeps or self.clock() - self._last_at > LONGEST_SWEEP_S

    def __str__(self) -> str:
        """Say how long it has lasted."""
        return f"{self._last - self._begun_with} sweeps, the last one {self.clock() - self._last_at:.0f} s ago"
