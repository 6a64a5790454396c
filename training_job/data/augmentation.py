"""What is done to an image before the model sees it: always the same for the same seed.

Seeds come from the position in the epoch's order, so they depend neither on the number of ranks nor on
threads, nor on where a resumed training starts again.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from shared.training_options import TrainingOptions

Augmentation = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
"""Takes an image, float32 [height, width, channels], and a seed, int32 [2]."""

_MARGIN = 0.875
"""What a centre crop keeps of the shorter side, as ImageNet is evaluated since AlexNet: 224 of 256."""
_CROP_AREA = (0.08, 1.0)
_CROP_ASPECT = (3 / 4, 4 / 3)
"""Szegedy et al. 2014, Going deeper with convolutions (arXiv 1409.4842), section 6."""


def training_augmentation(options: TrainingOptions, shape: tuple[int, ...]) -> Augmentation:
    """Return what is done to images that are trained on."""
    kind = options.augmentation
    if kind == "none" or len(shape) != 3:  # noqa: PLR2004 (height, width, channels)
        return lambda image, _: fitted(image, shape)
    if kind == "flip":
        return lambda image, seed: _flipped(fitted(image, shape), seed)
    if kind == "crop_flip":
        return lambda image, seed: _flipped(_shifted(fitted(image, shape), seed, options.crop_padding), seed)
    return lambda image, seed: _flipped(_resized_crop(image, seed, shape), seed)


def fitted(image: tf.Tensor, shape: tuple[int, ...]) -> tf.Tensor:
    """Return the image in the model's shape: as it is, or its centre, scaled."""
    if tuple(image.shape) == tuple(shape):
        return image
    height, width, _ = shape
    size = tf.cast(tf.shape(image)[:2], tf.float32)
    kept = tf.reduce_min(size / (height, width)) * _MARGIN * tf.constant([height, width], tf.float32)
    kept = tf.maximum(tf.cast(tf.round(kept), tf.int32), 1)
    start = (tf.shape(image)[:2] - kept) // 2
    crop = tf.slice(image, [start[0], start[1], 0], [kept[0], kept[1], -1])
    return tf.ensure_shape(tf.image.resize(crop, [height, width], antialias=True), shape)


def _apart(seed: tf.Tensor, use: int) -> tf.Tensor:
    """Return another seed for each use of one: a flip should not follow from a crop."""
    return tf.stack([seed[0] ^ use, seed[1]])


def _flipped(image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    return tf.image.stateless_random_flip_left_right(image, _apart(seed, 1))


def _shifted(image: tf.Tensor, seed: tf.Tensor, padding: int) -> tf.Tensor:
    padded = tf.pad(image, [[padding, padding], [padding, padding], [0, 0]])
    return tf.image.stateless_random_crop(padded, image.shape, _apart(seed, 2))


def _resized_crop(image: tf.Tensor, seed: tf.Tensor, shape: tuple[int, ...]) -> tf.Tensor:
    start, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        tf.shape(image),
        tf.zeros([1, 0, 4]),
        _apart(seed, 3),
        min_object_covered=0.0,
        area_range=_CROP_AREA,
        aspect_ratio_range=_CROP_ASPECT,
        use_image_if_no_bounding_boxes=True,
    )
    crop = tf.slice(image, start, size)
    return tf.ensure_shape(tf.image.resize(crop, shape[:2], antialias=True), shape)
