"""The learning rate of every step, a pure function of the number of epochs passed.

Linear scaling with the global batch and its warm-up: Goyal et al. 2017, Accurate, Large Minibatch SGD
(arXiv 1706.02677), sections 2.1 and 2.2. Cosine decay: Loshchilov & Hutter 2016 (arXiv 1608.03983).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

_START_WITHOUT_SCALING = 0.1
"""Start of a warm-up as a part of the peak, if no unscaled rate below the peak exists."""


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
