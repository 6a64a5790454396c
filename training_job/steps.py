"""The two compiled functions of a training: one optimizer update, one batch of evaluation."""

from __future__ import annotations

from collections.abc import Callable

import keras
import tensorflow as tf

from training_job import collective

Batch = tuple[tf.Tensor, tf.Tensor, tf.Tensor]
Step = Callable[[Batch], tf.Tensor]
"""Takes a batch, returns this rank's sums (see `training_job.metrics`), float32 [3]."""


def training_step(model: keras.Model, optimizer: keras.optimizers.Optimizer) -> Step:
    """Compile one optimizer update with gradients averaged over ranks."""
    values = [v.value for v in model.trainable_variables]

    def step(batch: Batch) -> tf.Tensor:
        images, labels, weights = batch
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            losses = _losses(labels, logits)
            loss = tf.reduce_mean(losses * weights)
        gradients = collective.averaged(tape).gradient(loss, values)
        optimizer.apply(gradients, model.trainable_variables)
        return _sums(labels, logits, losses, weights)

    return _compiled(step)


def evaluation_step(predict: Callable[[tf.Tensor], tf.Tensor]) -> Step:
    """Compile the evaluation of one batch by whatever maps images to logits."""

    def step(batch: Batch) -> tf.Tensor:
        images, labels, weights = batch
        logits = predict(images)
        return _sums(labels, logits, _losses(labels, logits), weights)

    return _compiled(step)


def _compiled(step: Step) -> Step:
    compiled: Step = tf.function(step, reduce_retracing=True)
    return compiled


def _losses(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)


def _sums(labels: tf.Tensor, logits: tf.Tensor, losses: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    correct = tf.cast(tf.equal(tf.argmax(logits, axis=-1), labels), tf.float32)
    return tf.reduce_sum(tf.stack([weights, losses * weights, correct * weights]), axis=1)
