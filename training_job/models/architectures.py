"""The architectures that ship: a small network, and those of keras.applications with their authors' normalisation.

All map pixels of 0 to 255 to logits. Normalisation is made of layers, so an exported model takes plain images.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import keras

from shared.job_arguments import numbers
from training_job.errors import ModelError

Normalisation = Callable[[Any], Any]
"""Maps a tensor of images to one."""

_IMAGENET_BGR_MEAN = (103.939, 116.779, 123.68)
_IMAGENET_RGB_MEAN = (123.675, 116.28, 103.53)
_IMAGENET_RGB_STD = (58.395, 57.12, 57.375)
"""Source of all three: keras/src/applications/imagenet_utils.py, times 255 where it divides first."""
_COLOURS = 3


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
    logits = keras.layers.Activation("linear", dtype="float32", name="logits")(body.output)
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
    """Return the images as they are: the network's own first layers normalise."""
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

_WITH_OWN_LAYERS = ("efficientnet", "mobilenetv3", "convnext")
"""These normalise in layers of their own."""


def _normalises_itself(name: str) -> bool:
    return name.lower().startswith(_WITH_OWN_LAYERS)


def _authors_normalisation(name: str) -> Normalisation:
    if _normalises_itself(name):
        return unchanged
    fitting = (normalise for beginnings, normalise in _NORMALISATIONS if name.lower().startswith(beginnings))
    return next(fitting, unchanged)
