"""Weights to start from, from a file: what fits is taken, a head of another size starts anew."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from training_job.errors import ModelError

_FEWEST = 0.5
"""The part of the weights that should fit: below it the file is of another architecture."""


def load_pretrained(model: keras.Model, path: Path) -> None:
    """Set the model's weights to the file's. Raises ModelError where it is unreadable or of another architecture."""
    if not path.is_file():
        raise ModelError(f"Pretrained weights {path} should be a file, there is none.")
    before = {v.path: np.array(v) for v in model.weights}
    try:
        _load(model, path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"Pretrained weights {path} cannot be read into {model.name}: {error}") from error
    taken = _taken(model, before)
    if taken < _FEWEST:
        raise ModelError(
            f"Pretrained weights {path} should be of {model.name}, but fit only {taken:.0%} of its weights. "
            f"Name the model they are of."
        )


def _load(model: keras.Model, path: Path) -> None:
    if path.suffix == ".keras":
        _copy_by_place(keras.saving.load_model(path, compile=False), model)
    else:
        with warnings.catch_warnings():
            # Keras warns of every layer that does not fit; how much fits is judged as a whole.
            warnings.simplefilter("ignore", UserWarning)
            model.load_weights(path, skip_mismatch=True)


def _copy_by_place(source: keras.Model, target: keras.Model) -> None:
    """Copy weight by weight, in the order in which the architecture has them, where shapes are equal."""
    for given, wanted in zip(source.weights, target.weights, strict=False):
        if given.shape == wanted.shape:
            wanted.assign(given)


def _taken(model: keras.Model, before: Mapping[str, Any]) -> float:
    """Return the part of all weights that changed, counting numbers, those of fresh constants aside."""
    changed = sum(
        v.shape.num_elements() if hasattr(v.shape, "num_elements") else int(np.prod(v.shape))
        for v in model.weights
        if not np.array_equal(before[v.path], np.array(v))
    )
    total = sum(int(np.prod(v.shape)) for v in model.weights)
    return changed / max(total, 1)
