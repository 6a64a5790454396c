"""Evaluation: every record of a split once, over all ranks together."""

from __future__ import annotations

import tensorflow as tf

from training_job import collective
from training_job.data.dataset import next_batch
from training_job.errors import DataError
from training_job.metrics import MetricLayout, Sums
from training_job.session import Session
from training_job.steps import EvaluationStep


def local_sums(step: EvaluationStep, data: tf.data.Dataset, steps: int, layout: MetricLayout, rank: int = 0) -> Sums:
    """Return this rank's sums over its share of the data. Raises DataError where it cannot be read."""
    sums, batches = layout.no_sums(), iter(data)
    for _ in range(steps):
        sums += step(next_batch(batches, rank)).numpy()
    return sums


def evaluate(session: Session) -> tuple[Sums, Sums]:
    """Return this rank's own sums and the sums over all ranks.

    Raises DataError where not every record was counted once.
    """
    first = session.position.epoch == session.job.start.epoch
    session.watch.enter("first evaluation" if first else "evaluation", session.position.step)
    plan = session.job.validation
    data = session.inputs.validation.evaluation()
    own = local_sums(session.predict, data, plan.steps, session.layout, session.world.rank)
    total = collective.sum_over_ranks(own, "evaluation")
    seen = session.layout.examples(total)
    if seen != plan.num_records and not session.job.arguments.synthetic_records:
        raise DataError(
            f"Split {plan.split!r} has {plan.num_records} records in the manifest, but {seen:.0f} were read."
        )
    return own, total
