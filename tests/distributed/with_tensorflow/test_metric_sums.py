"""The sums of one batch, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

from shared.training_options import ModelOptions
from training_job.metrics import layout_for
from training_job.steps import sums_for

GENERATOR = np.random.default_rng(11)
WEIGHTS = np.array([1, 1, 0, 1, 1, 1, 0, 1], np.float32)
"""Two examples only fill the batch up."""


def found(options: ModelOptions, logits: Any, labels: Any) -> tuple[Any, dict[str, float], float]:
    """Return each example's loss, the averages and how many examples they are over."""
    layout = layout_for(options)
    losses, sums = sums_for(options.task, layout)(tf.constant(logits), tf.constant(labels), tf.constant(WEIGHTS))
    return losses.numpy(), layout.averages(sums.numpy().astype(np.float64)), layout.examples(sums.numpy())


def test_of_several_classes_loss_accuracy_and_top_5_leave_out_what_fills_up() -> None:
    """Softmax cross-entropy in float64; the best, and among the best five."""
    logits = GENERATOR.normal(size=(8, 9)).astype(np.float32) * 2
    labels = np.argsort(-logits, axis=1)[np.arange(8), np.arange(8)]  # as many classes are better as the row says
    losses, averages, examples = found(ModelOptions(num_classes=9), logits, labels)
    precise = logits.astype(np.float64)
    own = precise[np.arange(8), labels]
    expected = np.log(np.exp(precise).sum(axis=1)) - own
    better = (precise > own[:, np.newaxis]).sum(axis=1)
    real = WEIGHTS > 0
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    assert 6 == examples
    assert averages == pytest.approx(
        {
            "loss": expected[real].mean(),
            "accuracy": (better[real] == 0).mean(),
            "top5_accuracy": (better[real] < 5).mean(),
        },
        rel=1e-5,
    )


def test_of_two_classes_loss_accuracy_and_area_leave_out_what_fills_up() -> None:
    """The area by comparing each positive with each negative."""
    logits = GENERATOR.normal(size=(8, 1)).astype(np.float32) * 2
    labels = np.array([1, 0, 1, 1, 0, 0, 0, 1])
    losses, averages, examples = found(ModelOptions(task="binary", num_classes=2), logits, labels)
    scores, real = logits[:, 0].astype(np.float64), WEIGHTS > 0
    expected = np.log1p(np.exp(-np.where(labels == 1, scores, -scores)))
    positives, negatives = scores[real & (labels == 1)], scores[real & (labels == 0)]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    assert 6 == examples
    assert averages == pytest.approx(
        {
            "loss": expected[real].mean(),
            "accuracy": ((scores > 0) == (labels == 1))[real].mean(),
            "auc": (positives[:, np.newaxis] > negatives).mean(),
        },
        rel=1e-5,
    )


def area(logits: NDArray[Any], labels: NDArray[Any], ranks: int = 3) -> float:
    """Return the area of what ranks see of it, their sums added up."""
    options = ModelOptions(task="binary", num_classes=2)
    layout = layout_for(options)
    sums_of, total = sums_for(options.task, layout), layout.no_sums()
    for rank in range(ranks):
        own, of_own = logits[rank::ranks, np.newaxis], labels[rank::ranks]
        total += sums_of(tf.constant(own), tf.constant(of_own), tf.ones(len(own)))[1].numpy()
    return layout.averages(total)["auc"]


def exact(logits: NDArray[Any], labels: NDArray[Any]) -> float:
    """Compare each positive with each negative; a tie counts half."""
    positives, negatives = logits[labels == 1, np.newaxis], logits[labels == 0]
    return float(((positives > negatives) + (positives == negatives) / 2).mean())


@pytest.mark.parametrize(
    ("center", "spread"), [(0, 0.02), (-2, 0.02), (-4, 0.04), (4, 0.04), (-7, 0.15), (-11, 1.0), (20, 1.0), (0, 9.0)]
)
def test_the_area_is_exact_to_two_thousandths_where_scores_lie_close_together(center: float, spread: float) -> None:
    """As of a model that has seen little, or of a class so rare that all that it says is nearly 0."""
    generator = np.random.default_rng(12)
    labels = (np.arange(600) % 4 == 0).astype(np.int64)
    logits = (center + spread * (generator.normal(size=600) + 1.8 * labels)).astype(np.float32)
    assert exact(logits, labels) == pytest.approx(area(logits, labels), abs=0.002)


def test_scores_that_are_equal_count_half() -> None:
    """Of seven scores everyone has many, on both sides of the ranks' cuts: all pairs are as they are counted."""
    generator = np.random.default_rng(13)
    labels = generator.integers(0, 2, 300)
    scores = np.array([-9, -3, -0.5, 0, 0.01, 2, 8], np.float32)
    logits = scores[generator.integers(0, 6, 300) + labels]
    assert exact(logits, labels) == pytest.approx(area(logits, labels), abs=1e-12)


@pytest.mark.parametrize("logit", [-60.0, 60.0])
def test_a_score_at_either_end_has_a_bucket(logit: float) -> None:
    """A probability of exactly 1 is within the last one."""
    logits = np.full((8, 1), logit, np.float32)
    averages = found(ModelOptions(task="binary", num_classes=2), logits, np.array([0, 1] * 4))[1]
    assert 0.5 == averages["auc"]
