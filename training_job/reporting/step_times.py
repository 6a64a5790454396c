"""Step times after timing warm-up: throughput, percentiles, the share of time spent waiting for data."""

from __future__ import annotations

from array import array

import numpy as np

TIMING_WARM_UP_STEPS = 10
"""The first steps of a process trace, compile and fill caches."""
KEPT_STEPS = 100_000
"""More than percentiles need; bounds memory over a training of weeks."""


class StepTimes:
    """Collects the seconds of each step: waiting for its batch, and computing it."""

    def __init__(self, global_batch_size: int) -> None:
        self._global_batch_size = global_batch_size
        self._seen = 0
        self._waits = array("d")
        self._steps = array("d")
        self._epoch_s = 0.0
        self._epoch_steps = 0

    def note(self, *, wait_s: float, step_s: float) -> None:
        """Record one step."""
        self._seen += 1
        self._epoch_steps += 1
        self._epoch_s += wait_s + step_s
        if self._seen <= TIMING_WARM_UP_STEPS:
            return
        if len(self._steps) == KEPT_STEPS:
            del self._steps[: KEPT_STEPS // 2], self._waits[: KEPT_STEPS // 2]
        self._waits.append(wait_s)
        self._steps.append(step_s)

    @property
    def images_per_s(self) -> float | None:
        """Throughput of all ranks together; None before the end of the warm-up."""
        total_s = sum(self._waits) + sum(self._steps)
        return round(len(self._steps) * self._global_batch_size / total_s, 2) if total_s else None

    def take_epoch(self) -> dict[str, float]:
        """Return duration and throughput of the steps since the last call."""
        duration_s, steps = self._epoch_s, self._epoch_steps
        self._epoch_s, self._epoch_steps = 0.0, 0
        rate = steps * self._global_batch_size / duration_s if duration_s else 0.0
        return {"duration_s": round(duration_s, 4), "images_per_s": round(rate, 2)}

    def summary(self) -> dict[str, float]:
        """Return percentiles in milliseconds and the share of time spent waiting for data; empty before warm-up."""
        if not self._steps:
            return {}
        steps, waits = np.asarray(self._steps), np.asarray(self._waits)
        percentiles = {f"p{p}_ms": round(float(np.percentile(steps, p)) * 1e3, 3) for p in (50, 90, 99)}
        share = float(waits.sum() / (waits.sum() + steps.sum()))
        return {"timed_steps": len(steps), **percentiles, "input_wait_share": round(share, 4)}
