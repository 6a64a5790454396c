"""Optimizers by name, among them SGD with momentum and LARS with the learning rate outside the momentum.

Keras' SGD multiplies the rate into the momentum, so that a rate that changes (warm-up, decay) lags behind in it,
which Goyal et al. 2017, section 3, correct for. With the rate outside, no correction is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from shared.job_arguments import OptimizationOptions, numbers
from training_job.schedule import RateSchedule


def build_optimizer(
    options: OptimizationOptions, variables: Sequence[Any], *, scaled_loss: bool
) -> keras.optimizers.Optimizer:
    """Build an optimizer with its state for the variables; ``scaled_loss`` for float16, whose gradients underflow."""
    optimizer = _by_name(options, variables)
    if scaled_loss:
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    optimizer.build(variables)
    return optimizer


def rate_schedule(options: OptimizationOptions, global_batch_size: int) -> RateSchedule:
    """Return the schedule that the options ask for at this global batch size."""
    return RateSchedule(
        base=options.learning_rate,
        scale=global_batch_size / options.reference_batch_size if options.reference_batch_size else 1.0,
        epochs=options.epochs,
        warm_up_epochs=options.warm_up_epochs,
        schedule=options.schedule,
        decay_epochs=numbers(options.decay_epochs),
        decay_factor=options.decay_factor,
    )


def _by_name(options: OptimizationOptions, variables: Sequence[Any]) -> keras.optimizers.Optimizer:
    if options.optimizer == "sgd":
        return Momentum(options.learning_rate, options.momentum, options.weight_decay)
    if options.optimizer == "lars":
        return Lars(options.learning_rate, options.momentum, options.weight_decay)
    if options.optimizer == "adam" and not options.weight_decay:
        return keras.optimizers.Adam(options.learning_rate)
    decoupled = keras.optimizers.AdamW(options.learning_rate, weight_decay=options.weight_decay)
    decoupled.exclude_from_weight_decay(var_list=[v for v in variables if not is_decayed(v)])
    return decoupled


def is_decayed(variable: Any) -> bool:
    """Whether weight decay and layer-wise rates apply: to kernels, not to biases and normalisation scales."""
    return len(variable.shape) > 1


class Momentum(keras.optimizers.Optimizer):  # type: ignore[misc]  # Keras has no types
    """``u ← m·u + g + λ·w;  w ← w - r·u``."""

    def __init__(self, learning_rate: float, momentum: float = 0.9, weight_decay: float = 0.0) -> None:
        """Take the rate r, the momentum m and the weight decay λ (kernels only)."""
        super().__init__(learning_rate=learning_rate, name=type(self).__name__.lower())
        self._momentum = momentum
        self._l2 = weight_decay

    def build(self, variables: Sequence[Any]) -> None:
        """Create one momentum for each variable."""
        if not self.built:
            super().build(variables)
            self._velocities = self.add_optimizer_variables(variables, "velocity")

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Update one variable: Keras', or TensorFlow's below it, which is what Keras passes."""
        velocity = self._velocities[self._get_variable_index(variable)]
        value = variable.value if isinstance(variable, keras.Variable) else variable
        # An embedding's gradient covers only the rows that were looked up; the momentum moves all rows.
        change = tf.cast(tf.convert_to_tensor(gradient), value.dtype)
        if self._l2 and is_decayed(value):
            change = change + self._l2 * value
        # One kernel for the whole formula. As separate operations it would pass over the weights about ten times.
        tf.raw_ops.ResourceApplyMomentum(
            var=value.handle,
            accum=velocity.value.handle,
            lr=tf.cast(learning_rate, value.dtype),
            grad=self.scale(change, value),
            momentum=tf.cast(self._momentum, value.dtype),
            use_nesterov=False,
        )

    def scale(self, change: Any, variable: Any) -> Any:
        """Return what is added to the momentum."""
        del variable
        return change


class Lars(Momentum):
    """Layer-wise rates for large batches: You, Gitman & Ginsburg 2017 (arXiv 1708.03888).

    A kernel's change is scaled by ``trust · |w| / |g + λ·w|``; biases and normalisation keep plain momentum.
    (The paper divides by ``|g| + λ·|w|``; the norm of the sum is its common form.)
    """

    trust = 0.001

    def scale(self, change: Any, variable: Any) -> Any:
        """Return the change, scaled by the layer's own rate."""
        if not is_decayed(variable):
            return change
        weight, size = ops.norm(variable), ops.norm(change)
        known = ops.logical_and(weight > 0, size > 0)
        # Both sides of a `where` are computed: the inner one avoids a division by zero.
        ratio = ops.where(known, self.trust * weight / ops.where(known, size, 1.0), 1.0)
        return change * ratio
