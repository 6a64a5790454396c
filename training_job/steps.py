"""The two compiled functions of a training, one optimizer update and one batch of evaluation; the sums of a batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from shared.training_report import LABEL, SCORE
from training_job import collective
from training_job.reporting.metrics import AUC_LOGIT_SCALE, MetricLayout

Batch = tuple[tf.Tensor, tf.Tensor, tf.Tensor]
"""Images, labels, weights; with gradient accumulation each has a leading axis of batches."""

TrainingStep = Callable[[Batch, tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
"""Takes a batch, the learning rate and the local flags; returns this rank's sums and the global flags.

Local flags: whether this rank asks to stop, and whether to save a checkpoint. Global flags, summed over all ranks:
ranks with a loss that is not finite, their numbers, ranks that ask to stop, ranks that ask to save.
"""
EvaluationStep = Callable[[Batch], tuple[tf.Tensor, tf.Tensor]]
"""Takes a batch; returns this rank's sums, and the values of each example, float32 [B, columns]."""
ValuesOf = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
"""Takes logits and labels; returns the values of each example, float32 [B, columns], see `example_columns`."""

SumsOf = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
"""Takes logits, labels and weights; returns each example's loss, float32 [B], and the batch's sums, float32."""

Gradients = list[tf.Tensor | None]
"""None for a variable that the loss does not depend on."""


@dataclass(frozen=True, kw_only=True)
class StepOptions:
    """How an update is computed."""

    accumulation: int = 1
    xla: bool = False
    fp16_compression: bool = False
    averaging: bool = True
    """False: each rank updates by its own gradients, to measure the cost of communication."""
    rank: int = 0


class Update:
    """One optimizer update with gradients averaged over ranks."""

    def __init__(
        self, model: keras.Model, optimizer: keras.optimizers.Optimizer, sums_of: SumsOf, options: StepOptions
    ) -> None:
        self._model = model
        self._optimizer = optimizer
        self._sums_of = sums_of
        self._options = options
        self._values = [v.value for v in model.trainable_variables]
        self._local: Callable[[Batch], tuple[Gradients, tf.Tensor]] = self._local_gradients
        if options.xla:
            # Only what one rank computes: XLA cannot compile communication with other ranks.
            self._local = tf.function(self._local_gradients, jit_compile=True)

    def compiled(self) -> TrainingStep:
        """Return the compiled update."""
        step: TrainingStep = tf.function(self._step, reduce_retracing=True)
        return step

    def _step(self, batch: Batch, rate: tf.Tensor, local_flags: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        gradients, sums = self._gradients(batch)
        bad = 1.0 - tf.cast(tf.math.is_finite(sums[1]), tf.float32)
        flags = tf.concat([tf.stack([bad, bad * self._options.rank]), local_flags], axis=0)
        if self._options.averaging:
            flags = collective.sum_in_graph(flags, "flags")
        self._optimizer.learning_rate = rate
        self._optimizer.apply(gradients, self._model.trainable_variables)
        return sums, flags

    def _gradients(self, batch: Batch) -> tuple[Gradients, tf.Tensor]:
        options = self._options
        if options.accumulation == 1 and not options.xla and options.averaging:
            # Horovod averages each gradient while those of earlier layers are still being computed.
            return self._differentiate(batch, fp16=options.fp16_compression)
        gradients, sums = self._accumulated(batch) if options.accumulation > 1 else self._local(batch)
        if options.averaging:
            gradients = collective.average_gradients(gradients, fp16=options.fp16_compression)
        return gradients, sums

    def _accumulated(self, batches: Batch) -> tuple[Gradients, tf.Tensor]:
        first, sums = self._local(_batch(batches, 0))
        total = _tensors(first)  # without None, which a loop of the graph cannot carry
        for i in tf.range(1, self._options.accumulation):
            more, more_sums = self._local(_batch(batches, i))
            total = [t + m for t, m in zip(total, _tensors(more), strict=True)]
            sums = sums + more_sums
        means = iter([t / self._options.accumulation for t in total])
        return [None if g is None else next(means) for g in first], sums

    def _local_gradients(self, batch: Batch) -> tuple[Gradients, tf.Tensor]:
        return self._differentiate(batch, fp16=None)

    def _differentiate(self, batch: Batch, *, fp16: bool | None) -> tuple[Gradients, tf.Tensor]:
        """Return gradients, averaged over ranks unless ``fp16`` is None, and this rank's sums."""
        images, labels, weights = batch
        with tf.GradientTape() as tape:
            logits = self._model(images, training=True)
            losses, sums = self._sums_of(logits, labels, weights)
            loss = self._optimizer.scale_loss(tf.reduce_mean(losses * weights) + _penalties(self._model))
        if fp16 is not None:
            tape = collective.averaging_tape(tape, fp16=fp16)
        return list(tape.gradient(loss, self._values)), sums


def evaluation_step(
    predict: Callable[[tf.Tensor], tf.Tensor], sums_of: SumsOf, values_of: ValuesOf
) -> EvaluationStep:
    """Compile the evaluation of one batch; ``predict`` maps images to logits."""

    def step(batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        images, labels, weights = batch
        logits = predict(images)
        return sums_of(logits, labels, weights)[1], values_of(logits, labels)

    compiled: EvaluationStep = tf.function(step, reduce_retracing=True)
    return compiled


def _penalties(model: keras.Model) -> Any:
    penalties: Sequence[tf.Tensor] = model.losses
    return tf.add_n([tf.cast(p, tf.float32) for p in penalties]) if penalties else 0.0


def _tensors(gradients: Gradients) -> list[tf.Tensor]:
    return [tf.convert_to_tensor(g) for g in gradients if g is not None]


def _batch(batches: Batch, i: int | tf.Tensor) -> Batch:
    images, labels, weights = batches
    return images[i], labels[i], weights[i]


def sums_for(task: str, layout: MetricLayout) -> SumsOf:
    """Return the losses and sums of a task."""
    if task == "binary":
        return lambda logits, labels, weights: _binary(logits, labels, weights, layout)
    return lambda logits, labels, weights: _multiclass(logits, labels, weights, layout)


def example_columns(layout: MetricLayout) -> tuple[str, ...]:
    """Return the columns of each example: the averaged metrics, and the inputs of the area under the curve."""
    return (*layout.names, LABEL, SCORE) if layout.auc_buckets else layout.names


def values_for(task: str, layout: MetricLayout) -> ValuesOf:
    """Return the values of each example of a task, in the order of `example_columns`."""
    if task == "binary":
        return lambda logits, labels: tf.stack([*_binary_values(logits, labels)], axis=1)
    return lambda logits, labels: tf.stack(_multiclass_values(logits, labels, layout), axis=1)


def _multiclass_values(logits: tf.Tensor, labels: tf.Tensor, layout: MetricLayout) -> list[tf.Tensor]:
    logits = tf.cast(logits, tf.float32)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    values = [losses, tf.cast(tf.equal(tf.argmax(logits, axis=-1), labels), tf.float32)]
    if "top5_accuracy" in layout.names:
        values.append(tf.cast(tf.math.in_top_k(labels, logits, 5), tf.float32))
    return values


def _binary_values(logits: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return loss, correctness, label and score of each example."""
    scores = tf.reshape(tf.cast(logits, tf.float32), [-1])
    positive = tf.cast(labels, tf.float32)
    losses = tf.nn.sigmoid_cross_entropy_with_logits(positive, scores)
    return losses, tf.cast(tf.equal(scores > 0, positive > 0), tf.float32), positive, scores


def _multiclass(
    logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor, layout: MetricLayout
) -> tuple[tf.Tensor, tf.Tensor]:
    """Evaluate logits [B, classes] against labels [B]."""
    values = _multiclass_values(logits, labels, layout)
    return values[0], _weighted(values, weights)


def _binary(
    logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor, layout: MetricLayout
) -> tuple[tf.Tensor, tf.Tensor]:
    """Evaluate logits [B, 1], where above 0 means class 1, against labels [B]."""
    losses, correct, positive, scores = _binary_values(logits, labels)
    share = tf.atan(scores / AUC_LOGIT_SCALE) / math.pi + 0.5
    buckets = tf.minimum(tf.cast(share * layout.auc_buckets, tf.int32), layout.auc_buckets - 1)
    histograms = [
        tf.math.unsorted_segment_sum(weights * of_class, buckets, layout.auc_buckets)
        for of_class in (positive, 1 - positive)
    ]
    return losses, tf.concat([_weighted([losses, correct], weights), *histograms], axis=0)


def _weighted(values: list[tf.Tensor], weights: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.stack([weights, *(value * weights for value in values)]), axis=1)
