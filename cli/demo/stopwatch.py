"""How long each phase of a demo took."""

from __future__ import annotations

import time
from collections.abc import Callable


class Stopwatch:
    """Phases follow each other; the one that begins ends the one before."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started_s = self._since_s = clock()
        self._phase: str | None = None
        self.durations_s: dict[str, float] = {}

    def begin(self, phase: str) -> None:
        """Enter a phase; the current one goes on where it is the same."""
        if phase == self._phase:
            return
        self._close()
        self._phase = phase

    def finish(self) -> dict[str, float]:
        """End the last phase and return all of them, and the total, rounded to milliseconds."""
        self._close()
        self._phase = None
        total_s = round(self._clock() - self._started_s, 3)
        return {**self.durations_s, "total": total_s}

    def _close(self) -> None:
        now_s = self._clock()
        if self._phase is not None:
            spent_s = self.durations_s.get(self._phase, 0.0) + now_s - self._since_s
            self.durations_s[self._phase] = round(spent_s, 3)
        self._since_s = now_s
