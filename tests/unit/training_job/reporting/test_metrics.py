"""Metrics as sums."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from shared.job_arguments import ModelOptions
from training_job.reporting.metrics import AUC_BUCKETS, MetricLayout, area_under_curve, layout_for


def histogram(scores: NDArray[Any]) -> NDArray[Any]:
    return np.histogram(scores, AUC_BUCKETS, (0, 1))[0].astype(float)


def test_an_average_is_weighted_by_examples() -> None:
    """Three examples of one rank weigh three times one of another."""
    layout = MetricLayout(names=("loss", "accuracy"))
    sums = np.array([3.0, 6.0, 3.0]) + np.array([1.0, 6.0, 0.0])
    assert {"loss": 3.0, "accuracy": 0.75} == layout.averages(sums)


def test_over_no_example_there_is_no_average() -> None:
    """The result is NaN rather than a failing division or a zero that looks good."""
    layout = MetricLayout(names=("loss",))
    assert math.isnan(layout.averages(layout.no_sums())["loss"])


@pytest.mark.parametrize(
    ("options", "names", "size"),
    [
        (ModelOptions(num_classes=10), ("loss", "accuracy", "top5_accuracy"), 4),
        (ModelOptions(num_classes=5), ("loss", "accuracy"), 3),
        (ModelOptions(task="binary", num_classes=2), ("loss", "accuracy"), 3 + 2 * AUC_BUCKETS),
    ],
)
def test_a_task_has_its_metrics(options: ModelOptions, names: tuple[str, ...], size: int) -> None:
    """Top-5 where there are more than five classes, histograms where there are two."""
    layout = layout_for(options)
    assert (names, size) == (layout.names, layout.size)


def test_the_area_is_scikit_learns() -> None:
    """The difference is within the width of the buckets."""
    generator = np.random.default_rng(7)
    positives, negatives = generator.beta(4, 2, 700), generator.beta(2, 3, 900)
    expected = roc_auc_score([1] * 700 + [0] * 900, np.concatenate([positives, negatives]))
    assert pytest.approx(expected, abs=1e-3) == area_under_curve(histogram(positives), histogram(negatives))


def test_histograms_of_ranks_add_up() -> None:
    """The area over two shares is that over both together, to the bit."""
    generator = np.random.default_rng(8)
    positives, negatives = generator.random(100), generator.random(100)
    parts = [(histogram(positives[i::2]), histogram(negatives[i::2])) for i in range(2)]
    together = area_under_curve(parts[0][0] + parts[1][0], parts[0][1] + parts[1][1])
    assert area_under_curve(histogram(positives), histogram(negatives)) == together


def test_with_one_class_missing_the_area_says_nothing() -> None:
    """A half: no better than a coin."""
    assert 0.5 == area_under_curve(np.zeros(4), np.ones(4))


def test_scores_in_one_bucket_count_half() -> None:
    """Three positives and five negatives with equal scores, and one positive above all."""
    assert 0.5 == area_under_curve(np.array([3.0]), np.array([5.0]))
    assert (3 * 5 / 2 + 5) / (4 * 5) == area_under_curve(np.array([3.0, 1.0]), np.array([5.0, 0.0]))
