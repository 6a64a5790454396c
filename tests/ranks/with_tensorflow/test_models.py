"""Models selected by name, by module and by weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from shared.configuration import MODELS
from shared.job_arguments import ModelOptions
from training_job.errors import ConfigurationError, ModelError
from training_job.models import application_names, build_model, fuse_batch_norm

SMALL = (64, 64, 3)


def logits(model: keras.Model, shape: tuple[int, ...], value: float = 128.0) -> Any:
    return np.asarray(model(np.full((2, *shape), value, np.float32), training=False))


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("small_cnn", (8, 8, 1)),
        ("ResNet50", SMALL),
        ("vgg16", SMALL),
        ("MobileNetV2", SMALL),
        ("EfficientNetB0", SMALL),
        ("MobileNetV3Small", SMALL),
    ],
)
def test_a_model_by_name_gives_finite_logits_of_every_class(name: str, shape: tuple[int, ...]) -> None:
    """The case of the name does not matter; plain pixels are the input, one logit for each class is the output."""
    found = logits(build_model(ModelOptions(model_name=name, num_classes=7), shape), shape)
    assert ((2, 7), True) == (found.shape, bool(np.isfinite(found).all()))


@pytest.mark.parametrize(
    ("name", "size", "weights"),
    [
        ("ResNet50", 224, 25_636_712),
        pytest.param("VGG16", 224, 138_357_544, marks=pytest.mark.slow),
        pytest.param("InceptionV3", 299, 23_851_784, marks=pytest.mark.slow),
    ],
)
def test_the_architectures_are_the_published_ones(name: str, size: int, weights: int) -> None:
    """With a thousand classes, the number of weights equals Keras' table of applications."""
    assert weights == build_model(ModelOptions(model_name=name, num_classes=1000), (size, size, 3)).count_params()


def test_a_binary_task_has_one_logit() -> None:
    """A logit above 0 means class 1."""
    model = build_model(ModelOptions(task="binary", num_classes=2), (8, 8, 1))
    assert (2, 1) == logits(model, (8, 8, 1)).shape


def with_batch_norm(policy: str, *, fused: bool) -> keras.Model:
    """A convolution and two normalisations, one of them nested and without a factor, from the same random numbers."""
    keras.utils.set_random_seed(1)
    keras.mixed_precision.set_global_policy(policy)
    try:
        nested = keras.Sequential([keras.layers.BatchNormalization(scale=False, momentum=0.9)])
        layers = [keras.layers.Conv2D(5, 3), keras.layers.BatchNormalization(beta_initializer="ones"), nested]
        model = keras.Sequential([keras.Input((6, 7, 3)), *layers])
    finally:
        keras.mixed_precision.set_global_policy("float32")
    if fused:
        fuse_batch_norm(model)
    return model


def trained_once(model: keras.Model) -> tuple[list[Any], set[str]]:
    """What one batch leads to: outputs, gradients, all weights, outputs of an evaluation; and the kernels used."""
    images = tf.random.stateless_normal((4, 6, 7, 3), seed=(1, 2)) * 3 + 1
    values = [variable.value for variable in model.trainable_variables]

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types
    def step() -> Any:
        with tf.GradientTape() as tape:
            outputs = model(images, training=True)
            loss = tf.reduce_sum(tf.sin(tf.cast(outputs, tf.float32)))
        return outputs, tape.gradient(loss, values)

    outputs, gradients = step()
    kernels = {op.type for op in step.get_concrete_function().graph.get_operations()}
    return [outputs, *gradients, *model.weights, model(images, training=False)], kernels


@pytest.mark.parametrize(("policy", "tolerance"), [("float32", 1e-4), ("mixed_float16", 5e-3), ("mixed_bfloat16", 0)])
def test_fused_batch_norm_computes_what_keras_computes(policy: str, tolerance: float) -> None:
    """Outputs, gradients and moving statistics are equal; Keras itself computes bfloat16."""
    expected, composed = trained_once(with_batch_norm(policy, fused=False))
    found, kernels = trained_once(with_batch_norm(policy, fused=True))
    assert ("FusedBatchNormV3" in kernels, "FusedBatchNormV3" in composed) == (policy != "mixed_bfloat16", False)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(
            tf.cast(one, tf.float32), tf.cast(other, tf.float32), rtol=tolerance, atol=tolerance
        )


def test_the_models_that_are_trained_use_the_fused_kernel(tmp_path: Path) -> None:
    """The saved model has Keras' own layers, so that it can be loaded without this package."""
    model = build_model(ModelOptions(model_name="ResNet50", num_classes=7), SMALL)
    graph = (
        tf.function(lambda images: model(images, training=True)).get_concrete_function(tf.zeros((2, *SMALL))).graph
    )
    assert [op.type for op in graph.get_operations()].count("FusedBatchNormV3") == 53
    model.save(tmp_path / "model.keras")
    read = keras.saving.load_model(tmp_path / "model.keras")
    assert {type(layer).__module__.split(".")[0] for layer in read.layers} == {"keras"}


def test_an_unknown_name_is_refused_with_a_list_of_names() -> None:
    """The list has small_cnn and all of keras.applications."""
    with pytest.raises(ConfigurationError, match=r'model_name: there is no model "ResNet51"; .*ResNet50'):
        build_model(ModelOptions(model_name="ResNet51"), SMALL)


def test_the_submitter_knows_every_model() -> None:
    """It refuses unknown names before it requests a node."""
    assert {"small_cnn", *application_names().values()} == set(MODELS)


@pytest.mark.parametrize(
    "name",
    [
        "small_cnn",
        "VGG16",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("MobileNet", "Xception", "InceptionV3", "MobileNetV3Small")
        ),
    ],
)
def test_the_submitter_knows_the_smallest_image_of_a_model(name: str) -> None:
    """With one pixel less, the model cannot be built."""
    size = MODELS[name]
    assert (None, 10) == build_model(ModelOptions(model_name=name), (size, size, 3)).output_shape
    with pytest.raises((ModelError, ValueError)):
        build_model(ModelOptions(model_name=name), (size - 1, size - 1, 3))


def test_images_that_are_too_small_are_refused_in_words() -> None:
    """Inception needs 75 pixels."""
    with pytest.raises(ModelError, match=r"InceptionV3 cannot be built for images of \(32, 32, 3\)"):
        build_model(ModelOptions(model_name="InceptionV3"), (32, 32, 3))


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("VGG16", "caffe"),
        ("ResNet50V2", "tf"),
        pytest.param("MobileNet", "tf", marks=pytest.mark.slow),
        pytest.param("DenseNet121", "torch", marks=pytest.mark.slow),
    ],
)
def test_pixels_are_normalised_as_keras_does_it_for_this_architecture(name: str, mode: str) -> None:
    """The model's first layers are keras.applications' preprocessing, so the exported model accepts plain images."""
    model = build_model(ModelOptions(model_name=name, num_classes=3), SMALL)
    pixels = np.random.default_rng(0).uniform(0, 255, (1, *SMALL)).astype(np.float32)
    expected = keras.src.applications.imagenet_utils.preprocess_input(pixels.copy(), mode=mode)
    first = next(layer for layer in model.layers if isinstance(layer, keras.layers.Rescaling))
    found = keras.Model(model.input, first.output)(pixels)
    np.testing.assert_allclose(np.asarray(found), expected, atol=1e-3)


def test_a_pipelines_own_normalisation_goes_before_the_authors() -> None:
    """(128 - 100) / 14 is 2, in every channel."""
    options = ModelOptions(model_name="MobileNet", pixel_mean="100,100,100", pixel_std="14,14,14")
    model = build_model(options, SMALL)
    found = keras.Model(model.input, model.get_layer("standardised").output)(np.full((1, *SMALL), 128, np.float32))
    np.testing.assert_allclose(np.asarray(found), 2.0, rtol=1e-5)


def module(folder: Path, text: str) -> ModelOptions:
    path = folder / "model.py"
    path.write_text(text)
    return ModelOptions(model_module=str(path), num_classes=3)


GOOD = """
import keras
def build_model(input_shape, num_classes):
    inputs = keras.Input(input_shape)
    return keras.Model(inputs, keras.layers.Dense(num_classes)(keras.layers.Flatten()(inputs)))
"""


def test_a_users_module_builds_the_model(tmp_path: Path) -> None:
    """The module receives the shape and the number of logits."""
    assert (2, 3) == logits(build_model(module(tmp_path, GOOD), (4, 4, 1)), (4, 4, 1)).shape


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", r"has no function build_model\(input_shape, num_classes\)"),
        ("import nothing_of_this_name", "cannot be loaded: ModuleNotFoundError"),
        ("def build_model(s, n):\n    return 1 / 0", r"failed: ZeroDivisionError: .* \(model.py, line 2\)"),
        ("def build_model(s, n):\n    return 'm'", "must return a keras.Model: it returned str"),
        (
            GOOD.replace("Dense(num_classes)", "Dense(9)"),
            r"returned a model with output \(None, 9\); return logits of shape \(None, 3\)",
        ),
    ],
)
def test_a_wrong_module_is_refused_with_the_reason(tmp_path: Path, text: str, message: str) -> None:
    """The message has the line of the user's file if there is one."""
    with pytest.raises(ModelError, match=message):
        build_model(module(tmp_path, text), (4, 4, 1))


def test_a_module_that_is_not_there_is_named() -> None:
    """The message also names the folder that the path is relative to."""
    with pytest.raises(ModelError, match=r"Model module nowhere\.py does not exist; its path is relative to /"):
        build_model(ModelOptions(model_module="nowhere.py"), (4, 4, 1))


@pytest.mark.parametrize("suffix", [".keras", ".weights.h5"])
def test_pretrained_weights_are_taken_and_a_head_of_another_size_stays_fresh(tmp_path: Path, suffix: str) -> None:
    """The file has ten classes and the model four: only the convolutions are loaded."""
    learned = build_model(ModelOptions(num_classes=10), (8, 8, 1))
    path = tmp_path / f"m{suffix}"
    learned.save(path) if suffix == ".keras" else learned.save_weights(path)
    keras.utils.set_random_seed(1)
    model = build_model(ModelOptions(num_classes=4, pretrained_weights=str(path)), (8, 8, 1))
    for expected, found in zip(learned.weights[:-2], model.weights[:-2], strict=True):
        np.testing.assert_array_equal(np.asarray(expected), np.asarray(found))
    assert (64, 4) == tuple(model.weights[-2].shape)


def test_weights_of_another_architecture_are_refused(tmp_path: Path) -> None:
    """Almost none of the weights fit."""
    other = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3), keras.layers.Dense(2)])
    other.save(tmp_path / "other.keras")
    options = ModelOptions(pretrained_weights=str(tmp_path / "other.keras"))
    with pytest.raises(ModelError, match="fit only 0% of the weights of small_cnn"):
        build_model(options, (8, 8, 1))


def test_weights_that_are_not_there_are_named(tmp_path: Path) -> None:
    """The message has the complete path."""
    with pytest.raises(ModelError, match=f"Pretrained weights {tmp_path}/none.keras do not exist"):
        build_model(ModelOptions(pretrained_weights=str(tmp_path / "none.keras")), (8, 8, 1))
