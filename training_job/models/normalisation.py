"""From pixels of 0 to 255 to what a network expects, as layers: an exported model takes plain images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from shared.training_options import numbers

Normalisation = Callable[[Any], Any]
"""From a tensor of images to one."""

_IMAGENET_BGR_MEAN = (103.939, 116.779, 123.68)
_IMAGENET_RGB_MEAN = (123.675, 116.28, 103.53)
_IMAGENET_RGB_STD = (58.395, 57.12, 57.375)
"""Source of all three: keras/src/applications/imagenet_utils.py, times 255 where it divides first."""

_COLOURS = 3


def own_normalisation(mean: str, std: str) -> Normalisation | None:
    """Return the normalisation that a pipeline states per channel; None where it states none."""
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


def as_it_is(images: Any) -> Any:
    """Leave the images alone: the network has its own first layers for it."""
    return images


def _standardised(mean: tuple[float, ...], std: tuple[float, ...]) -> Normalisation:
    layer = keras.layers.Rescaling(
        [1 / s for s in std], offset=[-m / s for m, s in zip(mean, std, strict=True)], name="standardised"
    )
    normalise: Normalisation = layer
    return normalise
