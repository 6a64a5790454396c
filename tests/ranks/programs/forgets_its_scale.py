"""A user's model with a layer that does not save its argument: loaded back, it computes something else."""

from __future__ import annotations

from typing import Any

import keras


@keras.saving.register_keras_serializable("tests")
class Scaled(keras.layers.Layer):  # type: ignore[misc]  # Keras has no types
    """Multiplies by a number."""

    def __init__(self, factor: float = 1.0, **options: Any) -> None:
        super().__init__(**options)
        self._factor = factor

    def get_config(self) -> dict[str, Any]:
        """Omit the factor, which Keras would have saved."""
        return {"name": self.name}

    def call(self, inputs: Any) -> Any:
        """Multiply."""
        return inputs * self._factor


def build_model(input_shape: tuple[int, ...], num_outputs: int) -> keras.Model:
    """Build one dense layer with its logits multiplied by three."""
    inputs = keras.Input(input_shape)
    x = keras.layers.Rescaling(1 / 255)(inputs)
    x = keras.layers.Dense(num_outputs)(keras.layers.Flatten()(x))
    return keras.Model(inputs, Scaled(3.0)(x), name="forgets_its_scale")
