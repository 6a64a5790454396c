"""Builds the model that the options ask for, and loads pretrained weights into it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from shared.job_arguments import ModelOptions
from training_job.errors import ModelError
from training_job.models.architectures import application, application_names, own_normalisation, small_cnn
from training_job.models.user_module import user_model

_MIN_LOADED = 0.5
"""The least part of the weights that a file has to fit; below it the file is for another architecture."""


def build_model(options: ModelOptions, input_shape: tuple[int, ...]) -> keras.Model:
    """Build a model that maps images as decoded (0 to 255) to logits: [B, classes], for task binary [B, 1].

    Raises ModelError if there is no such model, or it does not fit the images.
    """
    num_outputs = 1 if options.task == "binary" else options.num_classes
    model = _build(options, input_shape, num_outputs)
    if options.pretrained_weights:
        load_pretrained(model, Path(options.pretrained_weights))
    return model


def _build(options: ModelOptions, input_shape: tuple[int, ...], num_outputs: int) -> keras.Model:
    if options.model_module:
        return user_model(Path(options.model_module), input_shape, num_outputs)
    normalise = own_normalisation(options.pixel_mean, options.pixel_std)
    if options.model_name == "small_cnn":
        return small_cnn(input_shape, num_outputs, normalise)
    if options.model_name.lower() in application_names():
        return application(options.model_name, input_shape, num_outputs, normalise)
    raise ModelError(
        f"There is no model {options.model_name!r}; there are small_cnn and, of keras.applications, "
        f"{', '.join(application_names().values())}."
    )


def load_pretrained(model: keras.Model, path: Path) -> None:
    """Set the model's weights to the file's where shapes are equal; a head of another size keeps its fresh weights.

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
    """Copy weight by weight, in the order of the architecture, where shapes are equal."""
    for loaded, fresh in zip(source.weights, target.weights, strict=False):
        if loaded.shape == fresh.shape:
            fresh.assign(loaded)


def _changed_part(model: keras.Model, before: Mapping[str, Any]) -> float:
    """Return the part of all weights, counting numbers, whose variable differs from before."""
    changed = sum(int(np.prod(v.shape)) for v in model.weights if not np.array_equal(before[v.path], np.array(v)))
    total = sum(int(np.prod(v.shape)) for v in model.weights)
    return changed / max(total, 1)
