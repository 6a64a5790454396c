"""How a long validation is cut: into executions, and each of them into slices that end with a checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

DEFAULT_BUDGET_S = 20 * 60
"""Flex Consumption ends an execution after 30 minutes by default; the last chunk and the verdict need some of it."""
PATIENCE = 1.2
"""Times the budget: how long an execution may take where a shard cannot be paused."""


@dataclass(frozen=True, kw_only=True)
class Slices:
    """Durations by a clock that only goes forward."""

    budget_s: float = DEFAULT_BUDGET_S
    """After this an execution leaves the rest to the next one."""
    patience_s: float = DEFAULT_BUDGET_S * PATIENCE
    """After this a shard that cannot be paused is rejected: the next execution would come no further."""
    checkpoint_every_s: float = 60.0
    """An instance that is recycled without a word loses so much work at most, and one chunk."""
    min_bytes: int = 256 << 20
    """A smaller shard takes seconds: it is judged in one go, and costs no checkpoint."""
    seconds: Callable[[], float] = time.monotonic
