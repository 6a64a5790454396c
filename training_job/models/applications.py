"""The architectures of keras.applications, with their own heads and their authors' normalisation."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

import keras

from training_job.errors import ModelError
from training_job.models.normalisation import (
    Normalisation,
    as_it_is,
    imagenet_centred_bgr,
    imagenet_standardised,
    to_signed_unit,
)

_NORMALISATIONS: tuple[tuple[tuple[str, ...], Normalisation], ...] = (
    (("resnet50v2", "resnet101v2", "resnet152v2"), to_signed_unit),
    (("resnet", "vgg"), imagenet_centred_bgr),
    (("inception", "xception", "nasnet", "mobilenet"), to_signed_unit),
    (("densenet",), imagenet_standardised),
)
"""By the beginning of the name, the first that fits."""

_WITH_OWN_LAYERS = ("efficientnet", "mobilenetv3", "convnext")
"""These normalise in layers of their own."""


@cache
def application_names() -> dict[str, str]:
    """Return the names, lower case → as Keras writes them."""
    members = inspect.getmembers(keras.applications, inspect.isfunction)
    return {name.lower(): name for name, _ in members}


def application(
    name: str, input_shape: tuple[int, ...], num_outputs: int, normalise: Normalisation | None = None
) -> keras.Model:
    """Build an architecture with a new head that returns logits.

    Raises ModelError where it does not take images of this shape.
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


def _normalises_itself(name: str) -> bool:
    return name.lower().startswith(_WITH_OWN_LAYERS)


def _authors_normalisation(name: str) -> Normalisation:
    if _normalises_itself(name):
        return as_it_is
    fitting = (normalise for beginnings, normalise in _NORMALISATIONS if name.lower().startswith(beginnings))
    return next(fitting, as_it_is)
