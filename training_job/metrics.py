"""Metrics as sums: each rank adds up over its examples, the sums are added over ranks, then divided once.

So a metric is an average weighted by examples, however the examples are spread over ranks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

NAMES = ("examples", "loss", "accuracy")
"""What a sum vector holds, float64 [3]: the weight of all examples, then sums of weight x value."""

Sums = np.ndarray[Any, Any]


def no_sums() -> Sums:
    """Return the sums over no example."""
    return np.zeros(len(NAMES), np.float64)


def averages(sums: Sums) -> dict[str, float]:
    """Return each metric's average over all examples; nan over none."""
    examples = sums[0]
    return {name: float(sums[i] / examples) if examples else float("nan") for i, name in enumerate(NAMES) if i}
