"""How long a storm is waited for: by the work that was done meanwhile, which takes longer on a busy machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

LONGEST_SWEEP_S = 900.0
"""Without the end of a sweep for so long, nothing is done any more."""


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

    def __post_init__(self) -> None:
        self._begun_with = self._last = self.ended()
        self._last_at = self.clock()

    def is_over(self, left: int | None = None) -> bool:
        """Whether to give up. Where fewer things are ``left`` than ever, the count of sweeps begins again."""
        ended = self.ended()
        if ended != self._last:
            self._last, self._last_at = ended, self.clock()
        if left is not None and (self._least is None or left < self._least):
            self._least, self._begun_with = left, ended
        return ended - self._begun_with > self.sweeps or self.clock() - self._last_at > LONGEST_SWEEP_S

    def __str__(self) -> str:
        """Say how long it has lasted."""
        return f"{self._last - self._begun_with} sweeps, the last one {self.clock() - self._last_at:.0f} s ago"
