"""Evaluation: every record of a split once, over all ranks together."""

from __future__ import annotations

import tensorflow as tf

from training_job import collective
from training_job.metrics import Sums, no_sums
from training_job.steps import Step


def local_sums(step: Step, data: tf.data.Dataset) -> Sums:
    """Return this rank's sums over its share."""
    sums = no_sums()
    for batch in data:
        sums += step(batch).numpy()
    return sums


def evaluate(step: Step, data: tf.data.Dataset) -> tuple[Sums, Sums]:
    """Return this rank's own sums and those of all ranks together."""
    own = local_sums(step, data)
    return own, collective.summed(own, "evaluation")
