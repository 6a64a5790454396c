"""Optimizers compared with their formulas in numpy."""

from __future__ import annotations

from typing import Any, Literal

import keras
import numpy as np
import pytest
import tensorflow as tf

from shared.job_arguments import OptimizationOptions
from training_job.checkpoints.variables import assign, to_arrays
from training_job.optimizers import build_optimizer, rate_schedule

KERNEL = np.array([[1.0, -2.0], [0.5, 3.0]], np.float32)
BIAS = np.array([0.5, -0.5], np.float32)
GRADIENTS = [(np.full((2, 2), g, np.float32), np.full(2, g, np.float32)) for g in (0.5, -0.25, 1.0)]
RATES = (0.1, 0.1, 0.01)
"""Learning rates; the last step comes after a decay."""


ByMomentum = Literal["sgd", "lars"]


def fresh_variables() -> list[keras.Variable]:
    return [keras.Variable(KERNEL, name="kernel"), keras.Variable(BIAS, name="bias")]


def step_of(optimizer: keras.optimizers.Optimizer, variables: list[keras.Variable]) -> Any:
    """Return one update as the training runs it: in a graph, with the rate as an input."""

    def step(rate: Any, gradients: Any) -> None:
        optimizer.learning_rate = rate
        optimizer.apply(list(gradients), variables)

    return tf.function(step)


def trained(**options: Any) -> tuple[Any, Any]:
    """Apply the gradients at the learning rates."""
    variables = fresh_variables()
    step = step_of(build_optimizer(OptimizationOptions(**options), variables, scaled_loss=False), variables)
    for rate, gradients in zip(RATES, GRADIENTS, strict=True):
        step(tf.constant(rate), gradients)
    kernel, bias = variables
    return np.asarray(kernel), np.asarray(bias)


def momentum(weights: Any, which: int, decay: float = 0.0, trust: float | None = None) -> Any:
    """Compute u = 0.9 u + c, w = w - r u; c is the gradient with decay, scaled by LARS to the weights' norm."""
    velocity = np.zeros_like(weights)
    for rate, gradients in zip(RATES, GRADIENTS, strict=True):
        change = gradients[which] + decay * weights
        if trust is not None:
            change = change * trust * np.linalg.norm(weights) / np.linalg.norm(change)
        velocity = 0.9 * velocity + change
        weights = weights - rate * velocity
    return weights


def test_momentum_does_not_lag_behind_the_rate() -> None:
    """The rate is outside of the momentum: a decayed rate applies at once to the accumulated gradients."""
    kernel, bias = trained(optimizer="sgd")
    np.testing.assert_allclose(kernel, momentum(KERNEL, 0), rtol=1e-6)
    np.testing.assert_allclose(bias, momentum(BIAS, 1), rtol=1e-6)


def test_weight_decay_is_for_kernels() -> None:
    """Biases do not decay."""
    kernel, bias = trained(optimizer="sgd", weight_decay=0.1)
    np.testing.assert_allclose(kernel, momentum(KERNEL, 0, decay=0.1), rtol=1e-6)
    np.testing.assert_allclose(bias, momentum(BIAS, 1), rtol=1e-6)


def test_lars_gives_each_kernel_a_rate_of_its_own() -> None:
    """The rate is 0.001 |w| / |g + decay w|; a bias keeps plain momentum."""
    kernel, bias = trained(optimizer="lars", weight_decay=0.1)
    np.testing.assert_allclose(kernel, momentum(KERNEL, 0, decay=0.1, trust=0.001), rtol=1e-5)
    np.testing.assert_allclose(bias, momentum(BIAS, 1), rtol=1e-6)


def test_lars_leaves_a_kernel_of_zeros_to_plain_momentum() -> None:
    """This avoids a division by zero."""
    variable = keras.Variable(np.zeros((2, 2), np.float32), name="kernel")
    optimizer = build_optimizer(OptimizationOptions(optimizer="lars"), [variable], scaled_loss=False)
    optimizer.learning_rate = 0.1
    optimizer.apply([keras.ops.ones((2, 2))], [variable])
    np.testing.assert_allclose(np.asarray(variable), np.full((2, 2), -0.1), rtol=1e-6)


@pytest.mark.parametrize("name", ["sgd", "lars"])
def test_an_update_outside_a_graph_is_the_same(name: ByMomentum) -> None:
    """This also holds with Keras' own variables, which `update_step` receives if they were not unpacked before."""
    variables = fresh_variables()
    optimizer = build_optimizer(OptimizationOptions(optimizer=name, weight_decay=0.1), variables, scaled_loss=False)
    for rate, gradients in zip(RATES, GRADIENTS, strict=True):
        for variable, gradient in zip(variables, gradients, strict=True):
            optimizer.update_step(tf.constant(gradient), variable, rate)
    for expected, seen in zip(trained(optimizer=name, weight_decay=0.1), variables, strict=True):
        np.testing.assert_allclose(np.asarray(seen), expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["sgd", "lars"])
def test_the_momentum_is_part_of_what_is_saved(name: ByMomentum) -> None:
    """An optimizer that loads another one's state takes the same next step."""
    kernels = []
    for restored_before_last in (False, True):
        variables = fresh_variables()
        optimizer = build_optimizer(OptimizationOptions(optimizer=name), variables, scaled_loss=False)
        step = step_of(optimizer, variables)
        for rate, gradients in zip(RATES[:2], GRADIENTS[:2], strict=True):
            step(tf.constant(rate), gradients)
        if restored_before_last:
            saved = to_arrays(optimizer.variables)
            optimizer = build_optimizer(OptimizationOptions(optimizer=name), variables, scaled_loss=False)
            assign(optimizer.variables, saved)
            step = step_of(optimizer, variables)
        step(tf.constant(RATES[2]), GRADIENTS[2])
        kernels.append(np.asarray(variables[0]))
    undisturbed, restored = kernels
    np.testing.assert_array_equal(undisturbed, restored)


def test_a_gradient_of_some_rows_moves_all_that_have_momentum() -> None:
    """An embedding's gradient: rows that were not used have a gradient of zero."""
    variable = keras.Variable(KERNEL, name="kernel")
    optimizer = build_optimizer(OptimizationOptions(optimizer="sgd"), [variable], scaled_loss=False)
    step = step_of(optimizer, [variable])
    for row in (0, 1):
        step(tf.constant(0.1), [tf.IndexedSlices(tf.ones([1, 2]), tf.constant([row]), tf.constant([2, 2]))])
    np.testing.assert_allclose(np.asarray(variable), KERNEL - 0.1 * np.array([[1.9], [1.0]]), rtol=1e-6)


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_adam_is_keras_own(name: str) -> None:
    """Without weight decay, both are Adam."""
    variable = keras.Variable(KERNEL, name="kernel")
    reference = keras.optimizers.Adam(0.1)
    reference.build([variable])
    for rate, gradients in zip(RATES, GRADIENTS, strict=True):
        reference.learning_rate = rate
        reference.apply([keras.ops.convert_to_tensor(gradients[0])], [variable])
    np.testing.assert_allclose(trained(optimizer=name)[0], np.asarray(variable), rtol=1e-6)


def test_adams_weight_decay_is_decoupled_and_spares_biases() -> None:
    """The kernel becomes smaller than without decay; the bias does not."""
    plain, decayed = trained(optimizer="adamw"), trained(optimizer="adam", weight_decay=0.5)
    assert np.abs(decayed[0]).sum() < np.abs(plain[0]).sum()
    np.testing.assert_allclose(plain[1], decayed[1], rtol=1e-6)


@pytest.mark.parametrize("name", ["sgd", "lars"])
def test_a_scaled_loss_changes_no_step(name: ByMomentum) -> None:
    """The optimizer for float16 removes the scale from the gradients before it applies them."""
    variables = fresh_variables()
    optimizer = build_optimizer(OptimizationOptions(optimizer=name), variables, scaled_loss=True)
    step = step_of(optimizer, variables)
    scale = float(optimizer.scale_loss(keras.ops.convert_to_tensor(1.0)))
    for rate, gradients in zip(RATES, GRADIENTS, strict=True):
        step(tf.constant(rate), [g * np.float32(scale) for g in gradients])
    for expected, seen in zip(trained(optimizer=name), variables, strict=True):
        np.testing.assert_allclose(np.asarray(seen), expected, rtol=1e-6)


def test_a_step_whose_scaled_gradient_overflows_is_left_out() -> None:
    """Neither weights nor momentum change, and the next scale is smaller."""
    variables = fresh_variables()
    optimizer = build_optimizer(OptimizationOptions(optimizer="sgd"), variables, scaled_loss=True)
    step = step_of(optimizer, variables)
    before = float(optimizer.scale_loss(keras.ops.convert_to_tensor(1.0)))
    step(tf.constant(0.1), [np.full((2, 2), np.inf, np.float32), BIAS])
    after = float(optimizer.scale_loss(keras.ops.convert_to_tensor(1.0)))
    velocities = [v for v in optimizer.variables if "velocity" in v.path]
    expected = [KERNEL, BIAS, np.zeros_like(KERNEL), np.zeros_like(BIAS)]
    for value, seen in zip(expected, [*variables, *velocities], strict=True):
        np.testing.assert_array_equal(value, np.asarray(seen))
    assert after < before


def test_the_rate_scales_with_the_global_batch() -> None:
    """A rate of 0.1 for 256 becomes 3.2 for 8192; without a reference it does not change."""
    scaled = rate_schedule(OptimizationOptions(learning_rate=0.1, reference_batch_size=256), 8192)
    plain = rate_schedule(OptimizationOptions(learning_rate=0.1), 8192)
    assert pytest.approx((3.2, 0.1)) == (scaled.peak, plain.peak)
