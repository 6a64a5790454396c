"""The model that the options ask for."""

from __future__ import annotations

from pathlib import Path

import keras

from shared.training_options import ModelOptions
from training_job.errors import ModelError
from training_job.models.applications import application, application_names
from training_job.models.normalisation import own_normalisation
from training_job.models.pretrained import load_pretrained
from training_job.models.small_cnn import small_cnn
from training_job.models.user_module import user_model


def build_model(options: ModelOptions, input_shape: tuple[int, ...]) -> keras.Model:
    """Build a model that maps images as decoded (0 to 255) to logits: [B, classes], for task binary [B, 1].

    Raises ModelError where there is no such model, or it does not fit the images.
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
