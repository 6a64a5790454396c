"""A user's model that writes the settings under which it is built to NOTES_FOLDER/settings-<rank>.json."""

from __future__ import annotations

import json
import os
from pathlib import Path

import keras
from tensorflow.python.framework import config


def build_model(input_shape: tuple[int, ...], num_outputs: int) -> keras.Model:
    """Build a small network with a batch norm and a dropout."""
    horovod = {name: value for name, value in os.environ.items() if name.startswith("HOROVOD_")}
    settings = {
        "policy": keras.mixed_precision.global_policy().name,
        "deterministic": config.is_op_determinism_enabled(),
        "horovod": horovod,
    }
    rank = os.environ["OMPI_COMM_WORLD_RANK"]
    Path(os.environ["NOTES_FOLDER"], f"settings-{rank}.json").write_text(json.dumps(settings))
    inputs = keras.Input(input_shape)
    x = keras.layers.Rescaling(1 / 255)(inputs)
    x = keras.layers.Conv2D(32, 3, padding="same")(x)
    x = keras.layers.BatchNormalization()(x)
    x = keras.layers.Activation("relu")(x)
    x = keras.layers.Flatten()(x)
    x = keras.layers.Dropout(0.1)(x)
    return keras.Model(inputs, keras.layers.Dense(num_outputs, dtype="float32")(x), name="looks_around")
