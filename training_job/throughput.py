"""Images per second, after timing warm-up."""

from __future__ import annotations

import time
from collections.abc import Callable

TIMING_WARM_UP_STEPS = 10
"""The first steps trace, compile and fill caches."""


class Throughput:
    """Counts steps; times those after the warm-up."""

    def __init__(self, global_batch_size: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.global_batch_size = global_batch_size
        self._clock = clock
        self._steps = 0
        self._since: float | None = None
        self._until: float = 0.0

    def step_done(self) -> None:
        """Note that a step ended."""
        self._steps += 1
        self._until = self._clock()
        if self._steps == TIMING_WARM_UP_STEPS:
            self._since = self._until

    @property
    def images_per_s(self) -> float | None:
        """Of all ranks together since the warm-up; None before its end."""
        if self._since is None or self._until <= self._since:
            return None
        timed = self._steps - TIMING_WARM_UP_STEPS
        return round(timed * self.global_batch_size / (self._until - self._since), 1)
