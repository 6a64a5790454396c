"""From a feature's stored value to pixels, as the manifest's features say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import tensorflow as tf

from shared.example_schema import FeatureSpec
from shared.training_options import TrainingOptions
from training_job.errors import DataError

Shape = tuple[int | None, ...]
Decoder = Callable[[tf.Tensor], tf.Tensor]

_AXES = 3
_ENCODED = ("png", "jpeg", "image")


def feature(features: Sequence[FeatureSpec], name: str) -> FeatureSpec:
    """Return the feature of that name. Raises DataError naming those that there are."""
    found = next((f for f in features if f.name == name), None)
    if found is None:
        raise DataError(
            f"The manifest's features should include {name!r}; it has {[f.name for f in features]}. "
            f"Name the right one with --image-feature or --label-feature."
        )
    return found


@dataclass(frozen=True, kw_only=True)
class ImageShapes:
    """What a stored image looks like, and what the model is given."""

    stored: Shape
    """Height, width, channels; None where the manifest leaves it open."""
    model: tuple[int, ...]
    """Height, width, channels."""


def image_shapes(spec: FeatureSpec, options: TrainingOptions) -> ImageShapes:
    """Return both. Raises DataError where neither the manifest nor an option says one."""
    stored: Shape = spec.shape or (None,) * _AXES
    wanted = (options.image_height, options.image_width, options.image_channels)
    if len(stored) != _AXES:
        if any(wanted) or None in stored:
            raise DataError(f"Feature {spec.name!r} should be an image to be resized, had shape {stored}.")
        return ImageShapes(stored=stored, model=tuple(size or 0 for size in stored))
    model = tuple(asked or given or 0 for asked, given in zip(wanted, stored, strict=True))
    if not all(model):
        raise DataError(
            f"Feature {spec.name!r} should have a full shape, had {stored} in the manifest. "
            f"Say what the model gets with --image-height, --image-width and --image-channels."
        )
    return ImageShapes(stored=stored, model=model)


def decoder_for(spec: FeatureSpec, shapes: ImageShapes) -> Decoder:
    """Return the function from one stored value to float32 values of the stored shape, images as 0 to 255."""

    def decode(value: tf.Tensor) -> tf.Tensor:
        if spec.encoding in _ENCODED:
            value = tf.io.decode_image(value, channels=shapes.model[-1], expand_animations=False)
            return tf.ensure_shape(tf.cast(value, tf.float32), [*shapes.stored[:2], shapes.model[-1]])
        if spec.encoding == "raw":
            value = tf.io.decode_raw(value, tf.as_dtype(spec.dtype))
        return tf.reshape(tf.cast(value, tf.float32), [-1 if size is None else size for size in shapes.stored])

    return decode
