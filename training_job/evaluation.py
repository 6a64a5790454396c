"""Evaluate each record of a split once, over all ranks; export the model and verify that the export is equivalent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from training_job import collective
from training_job.data.dataset import next_batch
from training_job.errors import DataError, ExportError
from training_job.reporting.example_results import ExampleResults
from training_job.reporting.metrics import MetricLayout, Sums
from training_job.session import Session
from training_job.steps import EvaluationStep, evaluation_step, example_columns, sums_for, values_for

KERAS_FILE = "model.keras"
SAVED_MODEL_FOLDER = "saved_model"
RELATIVE_TOLERANCE = 1e-3
"""Tolerance of each sum: a model loaded back may add in another order."""


def local_sums(
    step: EvaluationStep,
    data: tf.data.Dataset,
    steps: int,
    layout: MetricLayout,
    *,
    rank: int = 0,
    results: ExampleResults | None = None,
) -> Sums:
    """Return this rank's sums over its share of the data. Raises DataError if the data cannot be read.

    ``results`` gets the values of each example.
    """
    sums, batches = layout.no_sums(), iter(data)
    for _ in range(steps):
        batch = next_batch(batches, rank)
        batch_sums, values = step(batch)
        sums += batch_sums.numpy()
        if results is not None:
            results.add(values.numpy(), batch[2].numpy())
    return sums


def no_results(session: Session) -> ExampleResults | None:
    """Return an empty collection of this rank's results of each example; None for random pixels."""
    if session.job.arguments.synthetic_records:
        return None
    num_records, world = session.job.validation.num_records, session.world
    first = world.rank * num_records // world.size  # the start of this rank's lane, see `rank_plan.cut_lanes`
    return ExampleResults(example_columns(session.layout), num_records, first)


def evaluate(session: Session, results: ExampleResults | None = None) -> tuple[Sums, Sums]:
    """Return this rank's own sums and the sums over all ranks; ``results`` gets the values of each example.

    Raises DataError unless every record was counted exactly once.
    """
    first = session.position.epoch == session.job.start.epoch
    session.watch.enter("first evaluation" if first else "evaluation", session.position.step)
    plan = session.job.validation
    data = session.inputs.validation.evaluation()
    own = local_sums(session.predict, data, plan.steps, session.layout, rank=session.world.rank, results=results)
    total = collective.sum_over_ranks(own, "evaluation")
    seen = session.layout.examples(total)
    if seen != plan.num_records and not session.job.arguments.synthetic_records:
        raise DataError(
            f"Split {plan.split!r} has {plan.num_records} records in the manifest, but {seen:.0f} were read."
        )
    return own, total


def export(model: keras.Model, folder: Path) -> None:
    """Write ``model.keras`` and ``saved_model/`` (endpoint ``serve``: images as decoded to logits).

    The folder must be on a local disk: Keras renames files, and writes in their middle.
    """
    model.save(folder / KERAS_FILE)
    model.export(folder / SAVED_MODEL_FOLDER, format="tf_saved_model", verbose=False)


def check_exported(session: Session, folder: Path, expected: Sums) -> None:
    """Evaluate both exports on the root's own share and compare with its sums of the last evaluation.

    Raises ExportError naming the export and the metric.
    """
    task = session.job.arguments.task
    sums_of, values_of = sums_for(task, session.layout), values_for(task, session.layout)
    for name, load in ((KERAS_FILE, _load_keras), (SAVED_MODEL_FOLDER, _load_saved_model)):
        session.watch.enter("export", session.position.step)
        step = evaluation_step(load(folder / name), sums_of, values_of)
        data, steps = session.inputs.validation.evaluation(), session.job.validation.steps
        _compare(name, session, local_sums(step, data, steps, session.layout), expected)


def _load_keras(path: Path) -> Callable[[tf.Tensor], tf.Tensor]:
    try:
        model = keras.saving.load_model(path, compile=False)
    except (ValueError, TypeError) as error:
        raise ExportError(
            f"{path.name} cannot be loaded back: {error} A class of your own needs "
            f"@keras.saving.register_keras_serializable()."
        ) from error
    return lambda images: model(images, training=False)


def _load_saved_model(path: Path) -> Callable[[tf.Tensor], tf.Tensor]:
    loaded = tf.saved_model.load(str(path))

    def serve(images: tf.Tensor) -> tf.Tensor:
        return loaded.serve(images)  # returning loaded.serve itself would drop the variables

    return serve


def _compare(name: str, session: Session, seen: Sums, expected: Sums) -> None:
    # Histograms are left out: a score at a bucket's edge may fall to either side.
    for i, metric in enumerate(("examples", *session.layout.names)):
        if not np.isclose(seen[i], expected[i], rtol=RELATIVE_TOLERANCE, atol=RELATIVE_TOLERANCE):
            raise ExportError(
                f"{name}, loaded back, sums {metric} to another value: expected {expected[i]:.6g} as in the last "
                f"evaluation, got {seen[i]:.6g}. Some part of the model is not saved."
            )
