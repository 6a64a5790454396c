"""From a feature's stored value to the pixels that the model sees: decoding, fitting, augmentation.

Augmentation is the same for the same seed. Seeds come from the position in the epoch's order, so they depend neither
on the number of ranks nor on threads, nor on the position from which a training resumes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import tensorflow as tf

from shared.job_arguments import TrainingOptions
from shared.manifest import FeatureSpec
from training_job.errors import ConfigurationError

Shape = tuple[int | None, ...]
Decoder = Callable[[tf.Tensor], tf.Tensor]
Augmentation = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
"""Takes an image, float32 [height, width, channels], and a seed, int32 [2]."""

_AXES = 3
"""Height, width, channels."""
_ENCODED = ("png", "jpeg", "image")
_MARGIN = 0.875
"""Share of the shorter side that a centre crop keeps, as for ImageNet since AlexNet: 224 of 256."""
_CROP_AREA = (0.08, 1.0)
_CROP_ASPECT = (3 / 4, 4 / 3)
"""Szegedy et al. 2014, Going deeper with convolutions (arXiv 1409.4842), section 6."""


def feature(features: Sequence[FeatureSpec], name: str) -> FeatureSpec:
    """Return the feature of that name. Raises ConfigurationError listing the features that exist."""
    found = next((f for f in features if f.name == name), None)
    if found is None:
        raise ConfigurationError(
            f'image_feature or label_feature: the data has no feature "{name}", only '
            f"{', '.join(f.name for f in features)}."
        )
    return found


@dataclass(frozen=True, kw_only=True)
class ImageShapes:
    """The shape of a stored image, and that of the model's input."""

    stored: Shape
    """Height, width, channels; None if the manifest does not state it."""
    model: tuple[int, ...]
    """Height, width, channels."""


def image_shapes(spec: FeatureSpec, options: TrainingOptions) -> ImageShapes:
    """Return both shapes. Raises ConfigurationError if neither the manifest nor an option states the model's."""
    stored: Shape = spec.shape or (None,) * _AXES
    wanted = (options.image_height, options.image_width, options.image_channels)
    if len(stored) != _AXES:
        if any(wanted) or None in stored:
            raise ConfigurationError(
                f'image_feature: "{spec.name}" is not an image that can be resized: its shape is {stored}.'
            )
        return ImageShapes(stored=stored, model=tuple(size or 0 for size in stored))
    model = tuple(option or in_manifest or 0 for option, in_manifest in zip(wanted, stored, strict=True))
    if not all(model):
        raise ConfigurationError(
            f"image_height, image_width and image_channels: state them, because data.features gives {spec.name!r} an "
            f"incomplete shape: {stored}."
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


def fit(image: tf.Tensor, shape: tuple[int, ...]) -> tf.Tensor:
    """Return the image in the model's shape: unchanged if it has that shape, otherwise its centre, resized."""
    if tuple(image.shape) == tuple(shape):
        return image
    height, width, _ = shape
    size = tf.cast(tf.shape(image)[:2], tf.float32)
    kept = tf.reduce_min(size / (height, width)) * _MARGIN * tf.constant([height, width], tf.float32)
    kept = tf.maximum(tf.cast(tf.round(kept), tf.int32), 1)
    start = (tf.shape(image)[:2] - kept) // 2
    crop = tf.slice(image, [start[0], start[1], 0], [kept[0], kept[1], -1])
    return tf.ensure_shape(tf.image.resize(crop, [height, width], antialias=True), shape)


def training_augmentation(options: TrainingOptions, shape: tuple[int, ...]) -> Augmentation:
    """Return the augmentation of the training split's images; it also fits them to the model's shape."""
    kind = options.augmentation
    if kind == "none" or len(shape) != _AXES:
        return lambda image, _: fit(image, shape)
    if kind == "flip":
        return lambda image, seed: _flip(fit(image, shape), seed)
    if kind == "crop_flip":
        return lambda image, seed: _flip(_shift(fit(image, shape), seed, options.crop_padding), seed)
    return lambda image, seed: _flip(_resized_crop(image, seed, shape), seed)


def _seed_for(use: int, seed: tf.Tensor) -> tf.Tensor:
    """Return another seed for each use, so that flips and crops are independent."""
    return tf.stack([seed[0] ^ use, seed[1]])


def _flip(image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    return tf.image.stateless_random_flip_left_right(image, _seed_for(1, seed))


def _shift(image: tf.Tensor, seed: tf.Tensor, padding: int) -> tf.Tensor:
    padded = tf.pad(image, [[padding, padding], [padding, padding], [0, 0]])
    return tf.image.stateless_random_crop(padded, image.shape, _seed_for(2, seed))


def _resized_crop(image: tf.Tensor, seed: tf.Tensor, shape: tuple[int, ...]) -> tf.Tensor:
    start, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        tf.shape(image),
        tf.zeros([1, 0, 4]),
        _seed_for(3, seed),
        min_object_covered=0.0,
        area_range=_CROP_AREA,
        aspect_ratio_range=_CROP_ASPECT,
        use_image_if_no_bounding_boxes=True,
    )
    crop = tf.slice(image, start, size)
    return tf.ensure_shape(tf.image.resize(crop, shape[:2], antialias=True), shape)
