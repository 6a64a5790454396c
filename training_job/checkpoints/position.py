"""Where in a training a checkpoint stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Position:
    """All that a training needs besides its variables to go on as if it had never stopped."""

    epoch: int
    """Epochs finished."""
    step_of_epoch: int
    """Optimizer updates within the epoch that is under way; 0 between epochs."""
    step: int
    """Optimizer updates in all."""
    seed: int
    fingerprint: str
    """Of what was trained on; another data set is not resumed from."""
    epochs: tuple[Mapping[str, float], ...] = field(default_factory=tuple)
    """The finished epochs' metrics, for the report."""
