"""The sums of one batch, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from shared.training_options import ModelOptions
from training_job.metric_sums import sums_for
from training_job.metrics import layout_for

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


@pytest.mark.parametrize("logit", [-60.0, 60.0])
def test_a_score_at_either_end_has_a_bucket(logit: float) -> None:
    """A probability of exactly 1 is within the last one."""
    logits = np.full((8, 1), logit, np.float32)
    averages = found(ModelOptions(task="binary", num_classes=2), logits, np.array([0, 1] * 4))[1]
    assert 0.5 == averages["auc"]
