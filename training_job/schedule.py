"""What changes over the epochs: the learning rate of each step, and what is decided after each epoch.

Both are pure functions of numbers that are the same on every rank, so every rank decides the same.

Linear scaling with the global batch and its warm-up: Goyal et al. 2017, Accurate, Large Minibatch SGD
(arXiv 1706.02677), sections 2.1 and 2.2. Cosine decay: Loshchilov & Hutter 2016 (arXiv 1608.03983).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

_START_WITHOUT_SCALING = 0.1
"""Fraction of the peak rate at which a warm-up starts if scaling does not raise the rate."""


@dataclass(frozen=True, kw_only=True)
class RateSchedule:
    """A base rate, its scaling, warm-up and decay."""

    base: float
    """Rate for the reference batch size."""
    scale: float
    """Global batch size over reference batch size; 1 without scaling."""
    epochs: float
    warm_up_epochs: float = 0.0
    schedule: Literal["constant", "cosine", "step"] = "constant"
    decay_epochs: tuple[float, ...] = ()
    decay_factor: float = 0.1

    @property
    def peak(self) -> float:
        """The rate after warm-up, before any decay."""
        return self.base * self.scale

    def rate(self, epochs_passed: float) -> float:
        """Return the rate of a step that starts after this number of epochs, fractions included."""
        if epochs_passed < self.warm_up_epochs:
            start = self.base if self.scale > 1 else self.peak * _START_WITHOUT_SCALING
            return start + (self.peak - start) * epochs_passed / self.warm_up_epochs
        return self.peak * self._decay(epochs_passed)

    def _decay(self, epochs_passed: float) -> float:
        if self.schedule == "cosine":
            length = max(self.epochs - self.warm_up_epochs, 1e-9)
            done = min((epochs_passed - self.warm_up_epochs) / length, 1.0)
            return 0.5 * (1 + math.cos(math.pi * done))
        if self.schedule == "step":
            passed = sum(1 for epoch in self.decay_epochs if epochs_passed >= epoch)
            return float(self.decay_factor**passed)
        return 1.0


@dataclass(frozen=True, kw_only=True)
class Standing:
    """The decisions after the epochs so far; part of every checkpoint."""

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
    """The monitored metric, and how long to wait for it to improve; a patience of 0 means for ever."""

    monitor: str
    minimum_delta: float = 0.0
    early_stopping_patience: int = 0
    plateau_patience: int = 0
    plateau_factor: float = 0.1

    def better(self, value: float, best: float | None) -> bool:
        """Whether a value beats the best one by more than ``minimum_delta``; every number beats NaN.

        Lower is better only for metrics whose names end in ``loss``.
        """
        if best is None or math.isnan(best):
            return best is None or not math.isnan(value)
        return (best - value if self.monitor.endswith("loss") else value - best) > self.minimum_delta


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
