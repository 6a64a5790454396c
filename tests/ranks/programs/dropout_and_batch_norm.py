"""A user's model with everything that makes resuming hard: batch norm statistics and random numbers of dropout."""

from __future__ import annotations

import keras


def build_model(input_shape: tuple[int, ...], num_outputs: int) -> keras.Model:
    """Build the model."""
    inputs = keras.Input(input_shape)
    x = keras.layers.Rescaling(1 / 255)(inputs)
    x = keras.layers.Conv2D(16, 3, use_bias=False)(x)
    x = keras.layers.BatchNormalization()(x)
    x = keras.layers.Activation("relu")(x)
    x = keras.layers.Flatten()(x)
    x = keras.layers.Dropout(0.3)(x)
    return keras.Model(inputs, keras.layers.Dense(num_outputs)(x), name="dropout_and_batch_norm")
