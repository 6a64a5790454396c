"""Optimizers, against their formulas written down in numpy."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from shared.training_options import OptimizationOptions
from training_job.optimization.optimizers import build_optimizer, rate_schedule

KERNEL = np.array([[1.0, -2.0], [0.5, 3.0]], np.float32)
BIAS = np.array([0.5, -0.5], np.float32)
GRADIENTS = [(np.full((2, 2), g, np.float32), np.full(2, g, np.float32)) for g in (0.5, -0.25, 1.0)]
RATES = (0.1, 0.1, 0.01)
"""The last step is after a decay."""


def trained(**options: Any) -> tuple[Any, Any]:
    """Apply the gradients, at the rates."""
    variables = [keras.Variable(KERNEL, name="kernel"), keras.Variable(BIAS, name="bias")]
    optimizer = build_optimizer(OptimizationOptions(**options), variables, scaled_loss=False)
    for rate, gradients in zip(RATES, GRADIENTS, strict=True):
        optimizer.learning_rate = rate
        optimizer.apply([keras.ops.convert_to_tensor(g) for g in gradients], variables)
    kernel, bias = variables
    return np.asarray(kernel), np.asarray(bias)


def momentum(weights: Any, which: int, decay: float = 0.0, trust: float | None = None) -> Any:
    """Follow u = 0.9 u + c, w = w - r u; c is the gradient with decay, by LARS scaled to the weights' size."""
    velocity = np.zeros_like(weights)
    for rate, gradients in zip(RATES, GRADIENTS, strict=True):
        change = gradients[which] + decay * weights
        if trust is not None:
            change = change * trust * np.linalg.norm(weights) / np.linalg.norm(change)
        velocity = 0.9 * velocity + change
        weights = weights - rate * velocity
    return weights


def test_momentum_does_not_lag_behind_the_rate() -> None:
    """The rate is outside the momentum: a decayed rate counts at once for all that was gathered."""
    kernel, bias = trained(optimizer="sgd")
    np.testing.assert_allclose(kernel, momentum(KERNEL, 0), rtol=1e-6)
    np.testing.assert_allclose(bias, momentum(BIAS, 1), rtol=1e-6)


def test_weight_decay_is_for_kernels() -> None:
    """A bias does not decay."""
    kernel, bias = trained(optimizer="sgd", weight_decay=0.1)
    np.testing.assert_allclose(kernel, momentum(KERNEL, 0, decay=0.1), rtol=1e-6)
    np.testing.assert_allclose(bias, momentum(BIAS, 1), rtol=1e-6)


def test_lars_gives_each_kernel_a_rate_of_its_own() -> None:
    """0.001 |w| / |g + decay w|; a bias keeps plain momentum."""
    kernel, bias = trained(optimizer="lars", weight_decay=0.1)
    np.testing.assert_allclose(kernel, momentum(KERNEL, 0, decay=0.1, trust=0.001), rtol=1e-5)
    np.testing.assert_allclose(bias, momentum(BIAS, 1), rtol=1e-6)


def test_lars_leaves_a_kernel_of_zeros_to_plain_momentum() -> None:
    """No division by nothing."""
    variable = keras.Variable(np.zeros((2, 2), np.float32), name="kernel")
    optimizer = build_optimizer(OptimizationOptions(optimizer="lars"), [variable], scaled_loss=False)
    optimizer.learning_rate = 0.1
    optimizer.apply([keras.ops.ones((2, 2))], [variable])
    np.testing.assert_allclose(np.asarray(variable), np.full((2, 2), -0.1), rtol=1e-6)


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_adam_is_keras_own(name: str) -> None:
    """Without decay both are Adam."""
    variable = keras.Variable(KERNEL, name="kernel")
    reference = keras.optimizers.Adam(0.1)
    reference.build([variable])
    for rate, gradients in zip(RATES, GRADIENTS, strict=True):
        reference.learning_rate = rate
        reference.apply([keras.ops.convert_to_tensor(gradients[0])], [variable])
    np.testing.assert_allclose(trained(optimizer=name)[0], np.asarray(variable), rtol=1e-6)


def test_adams_weight_decay_is_decoupled_and_spares_biases() -> None:
    """The kernel gets smaller than without, the bias does not."""
    plain, decayed = trained(optimizer="adamw"), trained(optimizer="adam", weight_decay=0.5)
    assert np.abs(decayed[0]).sum() < np.abs(plain[0]).sum()
    np.testing.assert_allclose(plain[1], decayed[1], rtol=1e-6)


def test_a_scaled_loss_changes_no_step() -> None:
    """float16's optimizer takes the scale off the gradient before it applies it."""
    variable = keras.Variable(KERNEL, name="kernel")
    optimizer = build_optimizer(OptimizationOptions(optimizer="sgd"), [variable], scaled_loss=True)
    optimizer.learning_rate = 0.1
    scale = float(optimizer.scale_loss(keras.ops.convert_to_tensor(1.0)))
    optimizer.apply([keras.ops.convert_to_tensor(GRADIENTS[0][0]) * scale], [variable])
    np.testing.assert_allclose(np.asarray(variable), KERNEL - 0.1 * GRADIENTS[0][0], rtol=1e-6)


def test_a_step_whose_scaled_gradient_overflows_is_left_out() -> None:
    """And the next scale is smaller."""
    variable = keras.Variable(KERNEL, name="kernel")
    optimizer = build_optimizer(OptimizationOptions(optimizer="sgd"), [variable], scaled_loss=True)
    before = float(optimizer.scale_loss(keras.ops.convert_to_tensor(1.0)))
    optimizer.apply([keras.ops.convert_to_tensor(np.full((2, 2), np.inf, np.float32))], [variable])
    after = float(optimizer.scale_loss(keras.ops.convert_to_tensor(1.0)))
    np.testing.assert_array_equal(KERNEL, np.asarray(variable))
    assert after < before


def test_the_rate_scales_with_the_global_batch() -> None:
    """0.1 for 256 is 3.2 for 8192; without a reference it stays."""
    scaled = rate_schedule(OptimizationOptions(learning_rate=0.1, reference_batch_size=256), 8192)
    plain = rate_schedule(OptimizationOptions(learning_rate=0.1), 8192)
    assert pytest.approx((3.2, 0.1)) == (scaled.peak, plain.peak)
