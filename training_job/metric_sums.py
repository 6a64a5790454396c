"""The sums of one batch, within a graph."""

from __future__ import annotations

import math
from collections.abc import Callable

import tensorflow as tf

from training_job.metrics import AUC_LOGIT_SCALE, MetricLayout

SumsOf = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
"""Takes logits, labels and weights; returns each example's loss, float32 [B], and the batch's sums, float32."""


def sums_for(task: str, layout: MetricLayout) -> SumsOf:
    """Return the losses and sums of a task."""
    if task == "binary":
        return lambda logits, labels, weights: _binary(logits, labels, weights, layout)
    return lambda logits, labels, weights: _multiclass(logits, labels, weights, layout)


def _multiclass(
    logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor, layout: MetricLayout
) -> tuple[tf.Tensor, tf.Tensor]:
    """Judge logits [B, classes] by labels [B]."""
    logits = tf.cast(logits, tf.float32)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    values = [losses, tf.cast(tf.equal(tf.argmax(logits, axis=-1), labels), tf.float32)]
    if "top5_accuracy" in layout.names:
        values.append(tf.cast(tf.math.in_top_k(labels, logits, 5), tf.float32))
    return losses, _weighted(values, weights)


def _binary(
    logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor, layout: MetricLayout
) -> tuple[tf.Tensor, tf.Tensor]:
    """Judge logits [B, 1], above 0 for class 1, by labels [B]."""
    scores = tf.reshape(tf.cast(logits, tf.float32), [-1])
    positive = tf.cast(labels, tf.float32)
    losses = tf.nn.sigmoid_cross_entropy_with_logits(positive, scores)
    correct = tf.cast(tf.equal(scores > 0, positive > 0), tf.float32)
    share = tf.atan(scores / AUC_LOGIT_SCALE) / math.pi + 0.5
    buckets = tf.minimum(tf.cast(share * layout.auc_buckets, tf.int32), layout.auc_buckets - 1)
    histograms = [
        tf.math.unsorted_segment_sum(weights * of_class, buckets, layout.auc_buckets)
        for of_class in (positive, 1 - positive)
    ]
    return losses, tf.concat([_weighted([losses, correct], weights), *histograms], axis=0)


def _weighted(values: list[tf.Tensor], weights: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.stack([weights, *(value * weights for value in values)]), axis=1)
