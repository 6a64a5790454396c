"""One optimizer update on one rank."""

from __future__ import annotations

from typing import Any

import horovod.tensorflow as hvd
import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

from shared.job_arguments import ModelOptions, OptimizationOptions
from training_job.optimizers import build_optimizer
from training_job.reporting.metrics import layout_for
from training_job.steps import Batch, StepOptions, Update, sums_for

OPTIONS = ModelOptions(num_classes=3)
IMAGES = np.random.default_rng(2).normal(size=(4, 5)).astype(np.float32)
LABELS = np.array([0, 1, 2, 1])


@pytest.fixture(autouse=True, scope="module")
def world_of_one() -> None:
    """Horovod without a launcher."""
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
    """It is the same when computed at once, with XLA, without an exchange, or from two halves of the batch."""
    model = linear()
    kernel = np.asarray(model.trainable_variables[0]).astype(np.float64)
    shape = (2, 2) if "accumulation" in options else (4,)
    np.testing.assert_allclose(stepped(model, batch(*shape), **options), by_hand(kernel), rtol=1e-5, atol=1e-6)


class WithUnusedWeight(keras.layers.Layer):  # type: ignore[misc]  # Keras states no types
    """Passes its input on; its weight affects nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = self.add_weight(shape=(2,), initializer="ones", name="unused")

    def call(self, inputs: Any) -> Any:
        return inputs


@pytest.mark.filterwarnings("ignore:Gradients do not exist for variables")
@pytest.mark.parametrize("options", [{}, {"accumulation": 2}, {"accumulation": 2, "xla": True}])
def test_a_weight_that_the_loss_does_not_use_keeps_its_value(options: dict[str, Any]) -> None:
    """The others change as in a model without it."""
    model = linear()
    wider = keras.Model(model.inputs, WithUnusedWeight()(model.outputs[0]))
    kernel = np.asarray(model.trainable_variables[0]).astype(np.float64)
    found = stepped(wider, batch(*((2, 2) if options else (4,))), **options)
    np.testing.assert_allclose(found, by_hand(kernel), rtol=1e-5, atol=1e-6)
    assert [1.0, 1.0] == np.asarray(wider.trainable_variables[-1]).tolist()


def test_a_models_own_penalties_are_part_of_the_loss() -> None:
    """A penalty that a layer adds changes the weights, too."""
    model = linear(penalty=0.5)
    kernel = np.asarray(model.trainable_variables[0]).astype(np.float64)
    np.testing.assert_allclose(stepped(model, batch(4)), by_hand(kernel, 0.5), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("xla", [True, False])
def test_xla_compiles_what_a_rank_computes_where_it_is_asked_for(xla: bool) -> None:  # noqa: FBT001 (a parameter)
    """With XLA, the graph has a function that must be compiled; without, it has none."""
    step = update(linear(), xla=xla)
    graph = step.get_concrete_function(batch(4), tf.constant(0.1), tf.zeros([2])).graph.as_graph_def()
    compiled = [f for f in graph.library.function if f.attr["_XlaMustCompile"].b]
    assert xla == bool(compiled)


def test_a_loss_that_is_no_number_is_flagged_with_the_rank() -> None:
    """Rank 3 sets the flag; the other local flags are passed on unchanged."""
    images, labels, weights = batch(4)
    bad = (tf.where(tf.range(4)[:, tf.newaxis] == 2, np.nan, images), labels, weights)
    step = update(linear(), rank=3)
    assert [1.0, 3.0, 0.0, 1.0] == step(bad, tf.constant(0.1), tf.constant([0.0, 1.0]))[1].numpy().tolist()
    assert [0.0, 0.0, 1.0, 0.0] == update(linear())(batch(4), tf.constant(0.1), tf.constant([1.0, 0.0]))[
        1
    ].numpy().tolist()


GENERATOR = np.random.default_rng(11)
WEIGHTS = np.array([1, 1, 0, 1, 1, 1, 0, 1], np.float32)
"""The two examples of weight 0 only pad the batch."""


def found(options: ModelOptions, logits: Any, labels: Any) -> tuple[Any, dict[str, float], float]:
    """Return each example's loss, the averages, and the number of examples in them."""
    layout = layout_for(options)
    losses, sums = sums_for(options.task, layout)(tf.constant(logits), tf.constant(labels), tf.constant(WEIGHTS))
    return losses.numpy(), layout.averages(sums.numpy().astype(np.float64)), layout.examples(sums.numpy())


def test_of_several_classes_loss_accuracy_and_top_5_leave_out_what_fills_up() -> None:
    """Softmax cross-entropy in float64, the most likely class, and the five most likely classes."""
    logits = GENERATOR.normal(size=(8, 9)).astype(np.float32) * 2
    labels = np.argsort(-logits, axis=1)[np.arange(8), np.arange(8)]  # the row says how many classes score higher
    losses, averages, examples = found(ModelOptions(num_classes=9), logits, labels)
    precise = logits.astype(np.float64)
    own = precise[np.arange(8), labels]
    expected = np.log(np.exp(precise).sum(axis=1)) - own
    better = (precise > own[:, np.newaxis]).sum(axis=1)
    real = WEIGHTS > 0
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    assert 6 == examples
    assert averages == pytest.approx(
        {
            "loss": expected[real].mean(),
            "accuracy": (better[real] == 0).mean(),
            "top5_accuracy": (better[real] < 5).mean(),
        },
        rel=1e-5,
    )


def test_of_two_classes_loss_accuracy_and_area_leave_out_what_fills_up() -> None:
    """The reference compares each positive with each negative example."""
    logits = GENERATOR.normal(size=(8, 1)).astype(np.float32) * 2
    labels = np.array([1, 0, 1, 1, 0, 0, 0, 1])
    losses, averages, examples = found(ModelOptions(task="binary", num_classes=2), logits, labels)
    scores, real = logits[:, 0].astype(np.float64), WEIGHTS > 0
    expected = np.log1p(np.exp(-np.where(labels == 1, scores, -scores)))
    positives, negatives = scores[real & (labels == 1)], scores[real & (labels == 0)]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    assert 6 == examples
    assert averages == pytest.approx(
        {
            "loss": expected[real].mean(),
            "accuracy": ((scores > 0) == (labels == 1))[real].mean(),
            "auc": (positives[:, np.newaxis] > negatives).mean(),
        },
        rel=1e-5,
    )


def area(logits: NDArray[Any], labels: NDArray[Any], ranks: int = 3) -> float:
    """Return the area computed from the sums of all ranks."""
    options = ModelOptions(task="binary", num_classes=2)
    layout = layout_for(options)
    sums_of, total = sums_for(options.task, layout), layout.no_sums()
    for rank in range(ranks):
        own, of_own = logits[rank::ranks, np.newaxis], labels[rank::ranks]
        total += sums_of(tf.constant(own), tf.constant(of_own), tf.ones(len(own)))[1].numpy()
    return layout.averages(total)["auc"]


def exact(logits: NDArray[Any], labels: NDArray[Any]) -> float:
    """Compare each positive with each negative example; a tie counts half."""
    positives, negatives = logits[labels == 1, np.newaxis], logits[labels == 0]
    return float(((positives > negatives) + (positives == negatives) / 2).mean())


@pytest.mark.parametrize(
    ("center", "spread"), [(0, 0.02), (-2, 0.02), (-4, 0.04), (4, 0.04), (-7, 0.15), (-11, 1.0), (20, 1.0), (0, 9.0)]
)
def test_the_area_is_exact_to_two_thousandths_where_scores_lie_close_together(center: float, spread: float) -> None:
    """Such scores come from a model early in training, or from a class so rare that most scores are near 0."""
    generator = np.random.default_rng(12)
    labels = (np.arange(600) % 4 == 0).astype(np.int64)
    logits = (center + spread * (generator.normal(size=600) + 1.8 * labels)).astype(np.float32)
    assert exact(logits, labels) == pytest.approx(area(logits, labels), abs=0.002)


def test_scores_that_are_equal_count_half() -> None:
    """Seven different scores, each many times and on both sides of the bucket bounds: every pair is counted once."""
    generator = np.random.default_rng(13)
    labels = generator.integers(0, 2, 300)
    scores = np.array([-9, -3, -0.5, 0, 0.01, 2, 8], np.float32)
    logits = scores[generator.integers(0, 6, 300) + labels]
    assert exact(logits, labels) == pytest.approx(area(logits, labels), abs=1e-12)


@pytest.mark.parametrize("logit", [-60.0, 60.0])
def test_a_score_at_either_end_has_a_bucket(logit: float) -> None:
    """A probability of exactly 1 is in the last bucket."""
    logits = np.full((8, 1), logit, np.float32)
    averages = found(ModelOptions(task="binary", num_classes=2), logits, np.array([0, 1] * 4))[1]
    assert 0.5 == averages["auc"]
