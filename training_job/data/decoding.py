"""From one record's bytes to ``(image, label)``, as the manifest's features say."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from shared.example_schema import FeatureSpec
from training_job.errors import DataError

Decoder = Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]


def feature(features: Sequence[FeatureSpec], name: str) -> FeatureSpec:
    """Return the feature of that name. Raises DataError naming those that there are."""
    found = next((f for f in features if f.name == name), None)
    if found is None:
        raise DataError(
            f"The manifest's features should include {name!r}; it has {[f.name for f in features]}. "
            f"Name the right one with --image-feature or --label-feature."
        )
    return found


def image_shape(features: Sequence[FeatureSpec], name: str) -> tuple[int, ...]:
    """Return height, width and channels. Raises DataError where the manifest leaves one of them open."""
    shape = feature(features, name).shape
    if not shape or any(size is None for size in shape):
        raise DataError(f"Feature {name!r} should have a full shape in the manifest, had {shape}.")
    return tuple(int(size or 0) for size in shape)


def decoder_for(features: Sequence[FeatureSpec], *, image: str, label: str) -> Decoder:
    """Return the function that decodes one serialized tf.train.Example."""
    image_spec, shape = feature(features, image), image_shape(features, image)
    parsed = {image: _parsing(image_spec), label: tf.io.FixedLenFeature([], tf.int64)}

    def decode(payload: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        example = tf.io.parse_single_example(payload, parsed)
        return _pixels(example[image], image_spec, shape), example[label]

    return decode


def _parsing(spec: FeatureSpec) -> tf.io.FixedLenFeature:
    if spec.kind == "bytes":
        return tf.io.FixedLenFeature([], tf.string)
    return tf.io.FixedLenFeature(spec.shape, tf.float32 if spec.kind == "float" else tf.int64)


def _pixels(value: tf.Tensor, spec: FeatureSpec, shape: tuple[int, ...]) -> tf.Tensor:
    """Return float32 values of the stated shape, images as 0 to 255."""
    if spec.encoding in ("png", "jpeg", "image"):
        value = tf.io.decode_image(value, channels=shape[-1], expand_animations=False)
    elif spec.encoding == "raw":
        value = tf.io.decode_raw(value, tf.as_dtype(spec.dtype))
    return tf.reshape(tf.cast(value, tf.float32), shape)
