"""Models: an architecture by name or from a user's file, with pretrained weights."""

from __future__ import annotations

import importlib.util
import inspect
import traceback
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import MethodType
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from shared.job_arguments import ModelOptions, numbers
from training_job.errors import ConfigurationError, ModelError

_MIN_LOADED = 0.5
"""Minimum share of the weights that a file must fit; below it, the file is for another architecture."""

Normalisation = Callable[[Any], Any]
"""Maps a tensor of images to one."""

_IMAGENET_BGR_MEAN = (103.939, 116.779, 123.68)
_IMAGENET_RGB_MEAN = (123.675, 116.28, 103.53)
_IMAGENET_RGB_STD = (58.395, 57.12, 57.375)
"""Source of all three: keras/src/applications/imagenet_utils.py, times 255 if it divides first."""
_COLOURS = 3
_IMAGE_RANK = 4
_FUSED_TYPES = (tf.float32, tf.float16)
"""The kernel takes float32 weights with both."""
_WITH_OWN_LAYERS = ("efficientnet", "mobilenetv3", "convnext")
"""These normalise in layers of their own."""
FUNCTION = "build_model"
"""The function of a user's file."""


def build_model(options: ModelOptions, input_shape: tuple[int, ...]) -> keras.Model:
    """Build a model that maps images as decoded (0 to 255) to logits: [B, classes], for task binary [B, 1].

    Raises ModelError if there is no such model, or it does not fit the images.
    """
    num_outputs = 1 if options.task == "binary" else options.num_classes
    model = _build(options, input_shape, num_outputs)
    if options.pretrained_weights:
        load_pretrained(model, Path(options.pretrained_weights))
    fuse_batch_norm(model)
    return model


def fuse_batch_norm(model: keras.Model) -> None:
    """Let the batch normalisation of images train with TensorFlow's fused kernel, as Keras 2 did.

    Keras 3 composes it of about ten operations, and a ResNet-50 then trains a sixth slower on a CPU. The result is
    the same within rounding. Only this object computes otherwise: saved and exported models have Keras' own layer.
    """
    for layer in model._flatten_layers():  # noqa: SLF001 - `layers` does not enter nested models
        if type(layer) is keras.layers.BatchNormalization and not (layer.renorm or layer.synchronized):
            layer.call = MethodType(_batch_norm, layer)


def _batch_norm(layer: keras.layers.BatchNormalization, inputs: Any, training: Any = None, mask: Any = None) -> Any:
    """Do the same as `BatchNormalization.call`, fused for images of [B, height, width, channels]."""
    images = len(inputs.shape) == _IMAGE_RANK and layer.axis in (-1, _IMAGE_RANK - 1)
    if not (training and layer.trainable and images and mask is None and inputs.dtype in _FUSED_TYPES):
        return type(layer).call(layer, inputs, training=training, mask=mask)
    channels = inputs.shape[-1]
    outputs, mean, variance = tf.compat.v1.nn.fused_batch_norm(
        inputs,
        tf.ones(channels) if layer.gamma is None else layer.gamma.value,
        tf.zeros(channels) if layer.beta is None else layer.beta.value,
        epsilon=layer.epsilon,
    )
    # The kernel returns the sample's variance times n / (n - 1); Keras 3 keeps the sample's own.
    n = tf.cast(tf.size(inputs, tf.int64) // channels, tf.float32)
    for moving, of_batch in ((layer.moving_mean, mean), (layer.moving_variance, variance * (n - 1) / n)):
        moving.assign(moving * layer.momentum + of_batch * (1 - layer.momentum))
    return outputs


def _build(options: ModelOptions, input_shape: tuple[int, ...], num_outputs: int) -> keras.Model:
    if options.model_module:
        return user_model(Path(options.model_module), input_shape, num_outputs)
    normalise = own_normalisation(options.pixel_mean, options.pixel_std)
    if options.model_name == "small_cnn":
        return small_cnn(input_shape, num_outputs, normalise)
    if options.model_name.lower() in application_names():
        return application(options.model_name, input_shape, num_outputs, normalise)
    raise ConfigurationError(
        f'model_name: there is no model "{options.model_name}"; there are small_cnn and, of keras.applications, '
        f"{', '.join(application_names().values())}."
    )


def load_pretrained(model: keras.Model, path: Path) -> None:
    """Set the model's weights to the file's if shapes are equal; a head of another size keeps its fresh weights.

    Raises ModelError if the file is unreadable or for another architecture.
    """
    if not path.is_file():
        raise ModelError(f"Pretrained weights {path} do not exist.")
    before = {v.path: np.array(v) for v in model.weights}
    try:
        _load(model, path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"Pretrained weights {path} cannot be read into {model.name}: {error}") from error
    loaded = _changed_part(model, before)
    if loaded < _MIN_LOADED:
        raise ModelError(
            f"Pretrained weights {path} fit only {loaded:.0%} of the weights of {model.name}. "
            f"Name the model that they belong to."
        )


def _load(model: keras.Model, path: Path) -> None:
    if path.suffix == ".keras":
        _copy_in_order(keras.saving.load_model(path, compile=False), model)
    else:
        with warnings.catch_warnings():
            # Keras warns about every layer that does not fit; how much fits is judged as a whole.
            warnings.simplefilter("ignore", UserWarning)
            model.load_weights(path, skip_mismatch=True)


def _copy_in_order(source: keras.Model, target: keras.Model) -> None:
    """Copy weight by weight, in the order of the architecture, if shapes are equal."""
    for loaded, fresh in zip(source.weights, target.weights, strict=False):
        if loaded.shape == fresh.shape:
            fresh.assign(loaded)


def _changed_part(model: keras.Model, before: Mapping[str, Any]) -> float:
    """Return the share of all weights whose variable differs from before."""
    changed = sum(int(np.prod(v.shape)) for v in model.weights if not np.array_equal(before[v.path], np.array(v)))
    total = sum(int(np.prod(v.shape)) for v in model.weights)
    return changed / max(total, 1)


def small_cnn(input_shape: tuple[int, ...], num_outputs: int, normalise: Normalisation | None = None) -> keras.Model:
    """Build two convolutions, pooling and one hidden layer, without batch norm; returns logits.

    85,066 weights for 8 x 8 grey images and ten classes; reaches 0.98 of scikit-learn's digits in 10 epochs of batch
    2 x 32 with Adam at 0.002.
    """
    inputs = keras.Input(input_shape, name="image")
    x = (normalise or to_unit)(inputs)
    x = keras.layers.Conv2D(32, 3, padding="same", activation="relu")(x)
    x = keras.layers.Conv2D(64, 3, padding="same", activation="relu")(x)
    x = keras.layers.MaxPooling2D(2)(x)
    x = keras.layers.Flatten()(x)
    x = keras.layers.Dense(64, activation="relu")(x)
    logits = keras.layers.Dense(num_outputs, dtype="float32", name="logits")(x)
    return keras.Model(inputs, logits, name="small_cnn")


@cache
def application_names() -> dict[str, str]:
    """Return the names of keras.applications, lower case → as Keras writes them."""
    members = inspect.getmembers(keras.applications, inspect.isfunction)
    return {name.lower(): name for name, _ in members}


def application(
    name: str, input_shape: tuple[int, ...], num_outputs: int, normalise: Normalisation | None = None
) -> keras.Model:
    """Build an architecture with a new head that returns logits.

    Raises ModelError if it does not take images of this shape.
    """
    architecture = getattr(keras.applications, application_names()[name.lower()])
    inputs = keras.Input(input_shape, name="image")
    options: dict[str, Any] = {}
    if normalise and _normalises_itself(name):
        options["include_preprocessing"] = False
    normalised = (normalise or _authors_normalisation(name))(inputs)
    try:
        body = architecture(
            weights=None, input_tensor=normalised, classes=num_outputs, classifier_activation=None, **options
        )
    except ValueError as error:
        raise ModelError(f"{name} cannot be built for images of {input_shape}: {error}") from error
    # MobileNetV3 has a layer of this name itself.
    head = "logits" if all(layer.name != "logits" for layer in body.layers) else "float32_logits"
    logits = keras.layers.Activation("linear", dtype="float32", name=head)(body.output)
    return keras.Model(inputs, logits, name=name.lower())


def own_normalisation(mean: str, std: str) -> Normalisation | None:
    """Return the normalisation that a pipeline states per channel; None if it states none."""
    if not mean:
        return None
    return _standardised(numbers(mean), numbers(std))


def to_unit(images: Any) -> Any:
    """Scale to 0 to 1."""
    return keras.layers.Rescaling(1 / 255)(images)


def to_signed_unit(images: Any) -> Any:
    """Scale to -1 to 1, as the Inception and MobileNet families expect ("tf")."""
    return keras.layers.Rescaling(1 / 127.5, offset=-1)(images)


def imagenet_standardised(images: Any) -> Any:
    """Subtract ImageNet's mean and divide by its deviation, as DenseNet expects ("torch")."""
    if images.shape[-1] != _COLOURS:
        return to_unit(images)
    return _standardised(_IMAGENET_RGB_MEAN, _IMAGENET_RGB_STD)(images)


def imagenet_centred_bgr(images: Any) -> Any:
    """Swap red and blue and subtract ImageNet's mean, as ResNet and VGG expect ("caffe")."""
    if images.shape[-1] != _COLOURS:
        return to_unit(images)
    swapped = images[..., ::-1]
    return keras.layers.Rescaling(1.0, offset=[-mean for mean in _IMAGENET_BGR_MEAN])(swapped)


def unchanged(images: Any) -> Any:
    """Return the images unchanged: the network's own first layers normalise."""
    return images


def _standardised(mean: tuple[float, ...], std: tuple[float, ...]) -> Normalisation:
    layer = keras.layers.Rescaling(
        [1 / s for s in std], offset=[-m / s for m, s in zip(mean, std, strict=True)], name="standardised"
    )
    normalise: Normalisation = layer
    return normalise


_NORMALISATIONS: tuple[tuple[tuple[str, ...], Normalisation], ...] = (
    (("resnet50v2", "resnet101v2", "resnet152v2"), to_signed_unit),
    (("resnet", "vgg"), imagenet_centred_bgr),
    (("inception", "xception", "nasnet", "mobilenet"), to_signed_unit),
    (("densenet",), imagenet_standardised),
)
"""By the beginning of an architecture's name; the first match counts."""


def _normalises_itself(name: str) -> bool:
    return name.lower().startswith(_WITH_OWN_LAYERS)


def _authors_normalisation(name: str) -> Normalisation:
    if _normalises_itself(name):
        return unchanged
    fitting = (normalise for beginnings, normalise in _NORMALISATIONS if name.lower().startswith(beginnings))
    return next(fitting, unchanged)


def user_model(path: Path, input_shape: tuple[int, ...], num_outputs: int) -> keras.Model:
    """Call ``build_model(input_shape, num_outputs)`` of the file; it returns a model of logits.

    Raises ModelError if the file, the function or the model is not as required.
    """
    build = _function(path)
    try:
        model = build(input_shape, num_outputs)
    except Exception as error:
        raise ModelError(f"{FUNCTION} of {path} failed: {_own_lines(error)}") from error
    if not isinstance(model, keras.Model):
        raise ModelError(f"{FUNCTION} of {path} must return a keras.Model: it returned {type(model).__name__}.")
    if tuple(model.output_shape) != (None, num_outputs):
        raise ModelError(
            f"{FUNCTION} of {path} returned a model with output {model.output_shape}; "
            f"return logits of shape (None, {num_outputs})."
        )
    return model


def _function(path: Path) -> Callable[[tuple[int, ...], int], Any]:
    if not path.is_file():
        raise ModelError(f"Model module {path} does not exist; its path is relative to {Path.cwd()}.")
    spec = importlib.util.spec_from_file_location("landfall_user_model", path)
    if spec is None or spec.loader is None:
        raise ModelError(f"Model module {path} is not a Python file: its name must end in .py.")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ModelError(f"Model module {path} cannot be loaded: {_own_lines(error)}") from error
    function = getattr(module, FUNCTION, None)
    if not callable(function):
        raise ModelError(f"Model module {path} has no function {FUNCTION}(input_shape, num_classes).")
    return function  # type: ignore[no-any-return]  # its arguments and result are checked when it is called


def _own_lines(error: Exception) -> str:
    """Return the error with the line that raised it, which is in the user's own code."""
    frames = traceback.extract_tb(error.__traceback__)
    where = frames[-1] if frames else None
    place = f" ({Path(where.filename).name}, line {where.lineno})" if where else ""
    return f"{type(error).__name__}: {error}{place}"
