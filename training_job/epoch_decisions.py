"""Decisions after an epoch: whether it is the best so far, whether to lower the rate, whether to stop.

Pure functions of metrics that are the same on every rank, so every rank decides the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class Standing:
    """The state of these decisions; part of every checkpoint."""

    best: float | None = None
    """The monitored metric's best value."""
    best_epoch: int = 0
    """The epoch of that value, 1 for the first; 0 before it."""
    waited: int = 0
    """Epochs since the best one."""
    plateau_waited: int = 0
    """Epochs since the best one or since the rate was last lowered."""
    rate_factor: float = 1.0
    """Factor of the learning rate, lowered on plateaus."""
    stopped: bool = False
    """Whether early stopping has ended the training."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The monitored metric, and how long to wait for it to improve; a patience of 0 means indefinitely."""

    monitor: str
    minimum_delta: float = 0.0
    early_stopping_patience: int = 0
    plateau_patience: int = 0
    plateau_factor: float = 0.1

    def better(self, value: float, best: float | None) -> bool:
        """Whether a value beats the best one by more than ``minimum_delta``; only losses should fall."""
        gain = 0.0 if best is None else (best - value if self.monitor.endswith("loss") else value - best)
        return best is None or gain > self.minimum_delta


def after_epoch(standing: Standing, rules: Rules, metrics: Mapping[str, float], epoch: int) -> Standing:
    """Return the standing after epoch ``epoch`` (1 for the first); its ``best_epoch`` says whether it improved."""
    value = metrics[rules.monitor]
    if rules.better(value, standing.best):
        return replace(standing, best=value, best_epoch=epoch, waited=0, plateau_waited=0)
    waited, plateau_waited = standing.waited + 1, standing.plateau_waited + 1
    lowered = 0 < rules.plateau_patience <= plateau_waited
    return replace(
        standing,
        waited=waited,
        plateau_waited=0 if lowered else plateau_waited,
        rate_factor=standing.rate_factor * (rules.plateau_factor if lowered else 1.0),
        stopped=0 < rules.early_stopping_patience <= waited,
    )
