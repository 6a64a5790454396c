"""From a feature's stored value to pixels."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from shared.job_arguments import TrainingOptions
from shared.manifest import Encoding, FeatureSpec
from training_job.data.images import decoder_for, feature, fit, image_shapes, training_augmentation
from training_job.errors import ConfigurationError

COLOURS = np.arange(6 * 4 * 3, dtype=np.uint8).reshape(6, 4, 3) * 3


def encoded(image: Any, kind: str, **how: Any) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, kind, **how)
    return buffer.getvalue()


def decoded(spec: FeatureSpec, value: Any, **options: Any) -> Any:
    return decoder_for(spec, image_shapes(spec, TrainingOptions(**options)))(tf.constant(value)).numpy()


def spec(encoding: Encoding, shape: tuple[int | None, ...] = (6, 4, 3)) -> FeatureSpec:
    return FeatureSpec(
        name="image", kind="bytes", shape=shape, encoding=encoding, dtype="uint8" if encoding == "raw" else None
    )


def test_png_is_exact() -> None:
    """Every pixel is exact, as a number from 0 to 255."""
    np.testing.assert_array_equal(COLOURS.astype(np.float32), decoded(spec("png"), encoded(COLOURS, "PNG")))


def test_jpeg_is_what_pillow_decodes() -> None:
    """The average difference is below two of 255: TensorFlow's decoder uses a faster, less exact transform."""
    smooth = np.add.outer(np.arange(64), np.arange(48)).astype(np.uint8)[..., np.newaxis].repeat(3, axis=-1)
    content = encoded(smooth, "JPEG", quality=95)
    expected = np.asarray(Image.open(io.BytesIO(content)), np.float32)
    assert np.abs(decoded(spec("jpeg", (64, 48, 3)), content) - expected).mean() < 2


def test_either_encoding_is_found_out() -> None:
    """The encoding ``image`` accepts both."""
    for kind in ("PNG", "JPEG"):
        assert (6, 4, 3) == decoded(spec("image"), encoded(COLOURS, kind)).shape


def test_raw_bytes_are_reshaped() -> None:
    """The bytes are read row by row."""
    np.testing.assert_array_equal(COLOURS, decoded(spec("raw"), COLOURS.tobytes()))


def test_grey_images_become_coloured_where_the_model_wants_it() -> None:
    """The single channel is repeated three times."""
    pixels = decoded(spec("png", (6, 4, None)), encoded(COLOURS[..., 0], "PNG"), image_channels=3)
    np.testing.assert_array_equal(pixels[..., 0], pixels[..., 2])


def test_an_open_shape_needs_an_option() -> None:
    """The message names the options to set."""
    with pytest.raises(ConfigurationError, match=r"^image_height, image_width and image_channels: state them"):
        image_shapes(spec("jpeg", (None, None, 3)), TrainingOptions())


def test_a_feature_that_is_not_there_is_named_with_those_that_are() -> None:
    """The message also names the option that selects another feature."""
    with pytest.raises(ConfigurationError, match='the data has no feature "picture", only image'):
        feature([spec("png")], "picture")


def test_an_image_that_fits_is_left_alone() -> None:
    """No interpolation is applied."""
    image = tf.constant(COLOURS, tf.float32)
    assert fit(image, (6, 4, 3)) is image


@pytest.mark.parametrize("size", [(300, 400), (500, 260), (40, 64)])
def test_other_images_are_cut_from_their_centre(size: tuple[int, int]) -> None:
    """A bright centre remains bright, and the result has the model's shape."""
    image = np.zeros((*size, 3), np.float32)
    height, width = size[0] // 8, size[1] // 8
    image[3 * height : 5 * height, 3 * width : 5 * width] = 255
    result = fit(tf.constant(image), (32, 32, 3)).numpy()
    assert (32, 32, 3) == result.shape
    assert result[15:17, 15:17].mean() > 250
    assert 0 == result[0].max()


@pytest.mark.parametrize("kind", ["none", "flip", "crop_flip", "resized_crop_flip"])
def test_augmentation_is_the_seeds(kind: str) -> None:
    """The same seed gives the same pixels, in the model's shape and from 0 to 255."""
    options = TrainingOptions(augmentation=kind)  # type: ignore[arg-type]
    augment = training_augmentation(options, (24, 24, 3))
    image = tf.constant(np.random.default_rng(0).uniform(0, 255, (32, 30, 3)), tf.float32)
    first, again = (augment(image, tf.constant([3, 4])).numpy() for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert ((24, 24, 3), True) == (first.shape, 0 <= first.min() <= first.max() <= 255.01)


@pytest.mark.parametrize("kind", ["flip", "crop_flip", "resized_crop_flip"])
def test_augmentation_differs_from_record_to_record(kind: str) -> None:
    """Ten random positions do not all give the same picture."""
    options = TrainingOptions(augmentation=kind)  # type: ignore[arg-type]
    augment = training_augmentation(options, (8, 8, 1))
    image = tf.constant(np.arange(64).reshape(8, 8, 1), tf.float32)
    seen = {augment(image, tf.constant([9, position])).numpy().tobytes() for position in range(10)}
    assert len(seen) > 1


def test_half_of_the_images_are_flipped() -> None:
    """Between 70 and 130 of 200 images are flipped, as expected of a fair coin."""
    augment = training_augmentation(TrainingOptions(augmentation="flip"), (1, 2, 1))
    image = tf.constant([[[0.0], [1.0]]])
    flipped = sum(float(augment(image, tf.constant([5, position]))[0, 0, 0]) for position in range(200))
    assert 70 < flipped < 130
