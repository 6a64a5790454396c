"""SGD with momentum, and LARS, with the learning rate outside the momentum.

Keras' SGD multiplies the rate into the momentum, so that a rate that changes (warm-up, decay) lags behind in
it; Goyal et al. 2017, section 3, call for a correction. Kept outside, none is needed.

TensorFlow has this very formula in one kernel. Written out it passes over the weights about ten times: of
ResNet-50's 94 MB that took 23 ms of a step of 852 on one CPU rank, and 50 ms of 966 on two that share its memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from training_job.optimization.decayed import is_decayed


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
        """Change one variable: Keras', or TensorFlow's below it, which is what Keras passes."""
        velocity = self._velocities[self._get_variable_index(variable)]
        value = variable.value if isinstance(variable, keras.Variable) else variable
        # An embedding's gradient is of the rows that were looked up; the momentum moves all.
        change = tf.cast(tf.convert_to_tensor(gradient), value.dtype)
        if self._l2 and is_decayed(value):
            change = change + self._l2 * value
        tf.raw_ops.ResourceApplyMomentum(
            var=value.handle,
            accum=velocity.value.handle,
            lr=tf.cast(learning_rate, value.dtype),
            grad=self.adapted(change, value),
            momentum=tf.cast(self._momentum, value.dtype),
            use_nesterov=False,
        )

    def adapted(self, change: Any, variable: Any) -> Any:
        """Return what is added to the momentum."""
        del variable
        return change


class Lars(Momentum):
    """Layer-wise rates for large batches: You, Gitman & Ginsburg 2017 (arXiv 1708.03888).

    A kernel's change is scaled by ``trust · |w| / |g + λ·w|``; biases and normalisation keep plain momentum.
    (The paper divides by ``|g| + λ·|w|``; the norm of the sum is its common form.)
    """

    trust = 0.001

    def adapted(self, change: Any, variable: Any) -> Any:
        """Return the change, scaled."""
        if not is_decayed(variable):
            return change
        weight, size = ops.norm(variable), ops.norm(change)
        known = ops.logical_and(weight > 0, size > 0)
        # Both sides of a where are computed: the second where keeps the division away from zero.
        ratio = ops.where(known, self.trust * weight / ops.where(known, size, 1.0), 1.0)
        return change * ratio
