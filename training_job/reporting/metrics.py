"""Metrics as sums: each rank adds up over its examples, the sums are added over ranks, then divided once.

A metric is therefore an average over examples, independent of their distribution over the ranks. The area under the
curve comes from two histograms of the predicted scores, which can be added, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from shared.job_arguments import ModelOptions

Sums = np.ndarray[Any, Any]

AUC_BUCKETS = 4096
"""Buckets of each class; both together are 64 KiB to add over ranks."""
AUC_LOGIT_SCALE = 2.5
"""Buckets are of equal width in the arctangent of the logit over this.

Early in training, or for a rare class, a model gives nearly the same probability to everything, as 0.5 or 0.02, and
buckets of equal width in the probability would hardly separate such scores. These buckets span 0.002 of the logit at
probability 0.5, 0.007 at 0.02, 0.02 at 0.001, and 0.1 at a logit of 20, where float32 rounds the probability to 1.
"""


@dataclass(frozen=True, kw_only=True)
class MetricLayout:
    """The layout of a sum vector: the weight of all examples, then the sums of weight x value, then histograms."""

    names: tuple[str, ...]
    """Names of the averages: ``loss``, ``accuracy``, …"""
    auc_buckets: int = 0
    """Buckets of each histogram, positives first; 0 without AUC."""

    @property
    def size(self) -> int:
        """Length of a sum vector."""
        return 1 + len(self.names) + 2 * self.auc_buckets

    def no_sums(self) -> Sums:
        """Return sums over no examples, float64."""
        return np.zeros(self.size, np.float64)

    def examples(self, sums: Sums) -> float:
        """Return the number of examples in a sum vector."""
        return float(sums[0])

    def averages(self, sums: Sums) -> dict[str, float]:
        """Return each metric over all examples; nan over none."""
        values = sums[1 : 1 + len(self.names)] / sums[0] if sums[0] else np.full(len(self.names), np.nan)
        metrics = dict(zip(self.names, map(float, values), strict=True))
        if self.auc_buckets:
            positives, negatives = sums[1 + len(self.names) :].reshape(2, self.auc_buckets)
            metrics["auc"] = area_under_curve(positives, negatives)
        return metrics


def layout_for(options: ModelOptions) -> MetricLayout:
    """Return the metrics of a task."""
    if options.task == "binary":
        averages = tuple(name for name in options.reported_metrics if name != "auc")
        return MetricLayout(names=averages, auc_buckets=AUC_BUCKETS)
    return MetricLayout(names=options.reported_metrics)


def area_under_curve(positives: Sums, negatives: Sums) -> float:
    """Return the area under the ROC curve from histograms over rising scores; 0.5 if a class is missing.

    It is the chance that a positive scores above a negative, those in one bucket counting half: exact except for
    scores closer than a bucket.
    """
    pairs = positives.sum() * negatives.sum()
    below = np.cumsum(negatives) - negatives
    return float((positives * (below + negatives / 2)).sum() / pairs) if pairs else 0.5
