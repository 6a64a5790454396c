"""The two compiled functions of a training: one optimizer update, one batch of evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from training_job import collective
from training_job.metric_sums import SumsOf

Batch = tuple[tf.Tensor, tf.Tensor, tf.Tensor]
"""Images, labels, weights; with gradient accumulation each has a leading axis of batches."""

TrainingStep = Callable[[Batch, tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
"""Takes a batch, the learning rate and this rank's wishes; returns this rank's sums and all ranks' news."""
EvaluationStep = Callable[[Batch], tf.Tensor]
"""Takes a batch, returns this rank's sums."""

Gradients = list[tf.Tensor]


@dataclass(frozen=True, kw_only=True)
class StepOptions:
    """How an update is computed."""

    accumulation: int = 1
    xla: bool = False
    fp16_compression: bool = False
    exchange: bool = True
    """False: every rank for itself, to time what the exchange costs."""
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
            # Only what one rank computes: an exchange with others cannot be compiled by XLA.
            self._local = tf.function(self._local_gradients, jit_compile=True)

    def compiled(self) -> TrainingStep:
        """Return the compiled update."""
        step: TrainingStep = tf.function(self._step, reduce_retracing=True)
        return step

    def _step(self, batch: Batch, rate: tf.Tensor, wishes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        gradients, sums = self._gradients(batch)
        bad = 1.0 - tf.cast(tf.math.is_finite(sums[1]), tf.float32)
        news = tf.concat([tf.stack([bad, bad * self._options.rank]), wishes], axis=0)
        if self._options.exchange:
            news = collective.sum_of(news, "news")
        self._optimizer.learning_rate = rate
        self._optimizer.apply(gradients, self._model.trainable_variables)
        return sums, news

    def _gradients(self, batch: Batch) -> tuple[Gradients, tf.Tensor]:
        options = self._options
        if options.accumulation == 1 and not options.xla and options.exchange:
            # Each gradient sets out on its way while those of earlier layers are still being computed.
            return self._differentiate(batch, fp16=options.fp16_compression)
        gradients, sums = self._accumulated(batch) if options.accumulation > 1 else self._local(batch)
        if options.exchange:
            gradients = collective.average_of(gradients, fp16=options.fp16_compression)
        return gradients, sums

    def _accumulated(self, batches: Batch) -> tuple[Gradients, tf.Tensor]:
        gradients, sums = self._local(_batch(batches, 0))
        gradients = [tf.convert_to_tensor(g) for g in gradients]
        for i in tf.range(1, self._options.accumulation):
            more, more_sums = self._local(_batch(batches, i))
            gradients = [g + tf.convert_to_tensor(m) for g, m in zip(gradients, more, strict=True)]
            sums = sums + more_sums
        return [g / self._options.accumulation for g in gradients], sums

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
            tape = collective.averaged(tape, fp16=fp16)
        return list(tape.gradient(loss, self._values)), sums


def evaluation_step(predict: Callable[[tf.Tensor], tf.Tensor], sums_of: SumsOf) -> EvaluationStep:
    """Compile the evaluation of one batch by whatever maps images to logits."""

    def step(batch: Batch) -> tf.Tensor:
        images, labels, weights = batch
        return sums_of(predict(images), labels, weights)[1]

    compiled: EvaluationStep = tf.function(step, reduce_retracing=True)
    return compiled


def _penalties(model: keras.Model) -> Any:
    penalties: Sequence[tf.Tensor] = model.losses
    return tf.add_n([tf.cast(p, tf.float32) for p in penalties]) if penalties else 0.0


def _batch(batches: Batch, i: int | tf.Tensor) -> Batch:
    images, labels, weights = batches
    return images[i], labels[i], weights[i]
