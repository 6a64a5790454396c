"""One optimizer update, on one rank."""

from __future__ import annotations

from typing import Any

import horovod.tensorflow as hvd
import keras
import numpy as np
import pytest
import tensorflow as tf

from shared.training_options import ModelOptions, OptimizationOptions
from training_job.metrics import layout_for
from training_job.optimization.optimizers import build_optimizer
from training_job.steps import Batch, StepOptions, Update, sums_for

OPTIONS = ModelOptions(num_classes=3)
IMAGES = np.random.default_rng(2).normal(size=(4, 5)).astype(np.float32)
LABELS = np.array([0, 1, 2, 1])


@pytest.fixture(autouse=True, scope="module")
def world_of_one() -> None:
    """Horovod, without a launcher."""
    hvd.init()


def linear(penalty: float = 0.0) -> keras.Model:
    keras.utils.set_random_seed(4)
    inputs = keras.Input((5,))
    regularizer = keras.regularizers.L2(penalty) if penalty else None
    return keras.Model(inputs, keras.layers.Dense(3, kernel_regularizer=regularizer)(inputs))


def update(model: keras.Model, **options: Any) -> Any:
    optimizer = build_optimizer(OptimizationOptions(optimizer="sgd"), model.trainable_variables, scaled_loss=False)
    return Update(model, optimizer, sums_for("multiclass", layout_for(OPTIONS)), StepOptions(**options)).compiled()


def batch(*shape: int) -> Batch:
    images, labels = IMAGES.reshape(*shape, 5), LABELS.reshape(shape)
    return tf.constant(images), tf.constant(labels), tf.ones(shape)


def stepped(model: keras.Model, of: Batch, **options: Any) -> Any:
    update(model, **options)(of, tf.constant(0.1), tf.zeros([2]))
    return np.asarray(model.trainable_variables[0])


def by_hand(kernel: Any, penalty: float = 0.0) -> Any:
    """Return the kernel after one step of plain gradient descent on the mean cross-entropy."""
    logits = IMAGES.astype(np.float64) @ kernel
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    gradient = IMAGES.T.astype(np.float64) @ (chances - np.eye(3)[LABELS]) / len(LABELS)
    return kernel - 0.1 * (gradient + 2 * penalty * kernel)


@pytest.mark.parametrize("options", [{}, {"xla": True}, {"averaging": False}, {"accumulation": 2}])
def test_an_update_is_a_step_down_the_mean_loss(options: dict[str, Any]) -> None:
    """However it is computed: at once, by XLA, without exchange, or from two halves of the batch."""
    model = linear()
    kernel = np.asarray(model.trainable_variables[0]).astype(np.float64)
    shape = (2, 2) if "accumulation" in options else (4,)
    np.testing.assert_allclose(stepped(model, batch(*shape), **options), by_hand(kernel), rtol=1e-5, atol=1e-6)


def test_a_models_own_penalties_are_part_of_the_loss() -> None:
    """What a layer adds pulls at the weights, too."""
    model = linear(penalty=0.5)
    kernel = np.asarray(model.trainable_variables[0]).astype(np.float64)
    np.testing.assert_allclose(stepped(model, batch(4)), by_hand(kernel, 0.5), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("xla", [True, False])
def test_xla_compiles_what_a_rank_computes_where_it_is_asked_for(xla: bool) -> None:  # noqa: FBT001 (a parameter)
    """The graph has a function that must be compiled; elsewhere it has none."""
    step = update(linear(), xla=xla)
    graph = step.get_concrete_function(batch(4), tf.constant(0.1), tf.zeros([2])).graph.as_graph_def()
    compiled = [f for f in graph.library.function if f.attr["_XlaMustCompile"].b]
    assert xla == bool(compiled)


def test_a_loss_that_is_no_number_is_news_with_the_rank() -> None:
    """One rank, number 3; the wishes are passed on as they are."""
    images, labels, weights = batch(4)
    bad = (tf.where(tf.range(4)[:, tf.newaxis] == 2, np.nan, images), labels, weights)
    step = update(linear(), rank=3)
    assert [1.0, 3.0, 0.0, 1.0] == step(bad, tf.constant(0.1), tf.constant([0.0, 1.0]))[1].numpy().tolist()
    assert [0.0, 0.0, 1.0, 0.0] == update(linear())(batch(4), tf.constant(0.1), tf.constant([1.0, 0.0]))[
        1
    ].numpy().tolist()
