"""Models by name."""

from __future__ import annotations

from collections.abc import Callable

import keras

from training_job.errors import ModelError
from training_job.models.small_cnn import small_cnn

Builder = Callable[[tuple[int, ...], int], keras.Model]

_MODELS: dict[str, Builder] = {"small_cnn": small_cnn}


def build_model(name: str, *, input_shape: tuple[int, ...], num_classes: int) -> keras.Model:
    """Build a model that maps images as decoded (0 to 255) to logits [B, num_classes].

    Raises ModelError where there is no such model.
    """
    if name not in _MODELS:
        raise ModelError(f"There is no model {name!r}; there are {sorted(_MODELS)}.")
    return _MODELS[name](input_shape, num_classes)
