"""Options that do not fit the data: each text begins with the option to change and says what the data have."""

from __future__ import annotations

from typing import Any

import pytest

from shared.configuration import misfits, mistakes
from shared.job_arguments import TrainingOptions
from shared.manifest import FeatureSpec, Manifest, ManifestShard, fingerprint

KNOWN = "data.features names image, label"


def manifest(labels: tuple[float, float] | None = (0, 3), num_labelled: int = 64) -> Manifest:
    """A version of 64 records in each of two splits, with these smallest and largest labels."""
    shards = tuple(
        ManifestShard(split=split, index=0, num_shards=1, name=split, size_bytes=1, crc32c="0" * 8, num_records=64)
        for split in ("train", "validation")
    )
    seen = {"minimum": labels[0], "maximum": labels[1], "num_present": num_labelled} if labels else {}
    statistics = {split: {"num_records": 64, "features": {"label": seen}} for split in ("train", "validation")}
    return Manifest(
        dataset="cats",
        version="v1",
        generation=1,
        fingerprint=fingerprint(shards),
        data_format="tfrecord",
        features=(
            FeatureSpec(name="image", kind="bytes", encoding="png", shape=(8, 8, 1)),
            FeatureSpec(name="label", kind="int64"),
        ),
        shards=shards,
        statistics={"splits": statistics},
    )


def found(of: Manifest | None = None, **options: Any) -> list[str]:
    """What does not fit."""
    return misfits(TrainingOptions(**options), of or manifest(), world_size=2)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"image_feature": "pixels"},
            'image_feature: the data has no feature "pixels"; ' + KNOWN,
        ),
        (
            {"label_feature": "class"},
            'label_feature: the data has no feature "class"; ' + KNOWN,
        ),
        ({"label_feature": "image"}, 'label_feature: "image" is not a label; a label is one int64 number'),
        (
            {"image_feature": "label"},
            'image_feature: "label" is the label too; name the feature that holds the image',
        ),
        ({"num_classes": 2}, "num_classes: 2, but labels go up to 3"),
        ({"num_classes": 2, "label_offset": -1}, "num_classes: 2 with label_offset: -1, but labels go up to 3"),
        ({"label_offset": 1}, "label_offset: 1, but labels go down to 0"),
        ({"train_split": "all"}, 'train_split: the data have no split "all"; they have train, validation'),
        (
            {"per_process_batch_size": 64},
            "per_process_batch_size: 64 on 2 processes needs 128 records for each step, but split train has 64",
        ),
        (
            {"per_process_batch_size": 32, "gradient_accumulation": 2},
            (
                "per_process_batch_size: 32 on 2 processes, accumulated 2 times, needs 128 records for each step, "
                "but split train has 64"
            ),
        ),
    ],
)
def test_a_text_names_the_option_and_what_the_data_have(options: dict[str, Any], problem: str) -> None:
    """The reader has the pipeline's file open, and neither a log nor the code."""
    assert [problem] == found(**options)


def test_what_fits_is_not_mentioned() -> None:
    """Four labels are four classes, and ImageNet's records begin with class 1."""
    assert [] == found(num_classes=4)
    assert [] == found(manifest((1, 4)), num_classes=4, label_offset=1)


def test_statistics_that_were_not_kept_refuse_nothing() -> None:
    """The training looks at each label anyway."""
    assert [] == found(manifest(None), num_classes=2)


def test_records_without_a_label_are_counted() -> None:
    """A feature that is not required may be missing in any record, and the training reads every one."""
    problem = 'label_feature: 4 of 64 records of split train have no "label"'
    assert problem == found(manifest(num_labelled=60), num_classes=4)[0]


def image(**members: Any) -> tuple[FeatureSpec, ...]:
    """Features with an image of these members, and a label."""
    return (FeatureSpec(name="image", **members), FeatureSpec(name="label", kind="int64", minimum=0, maximum=9))


@pytest.mark.parametrize(
    ("members", "options", "problem"),
    [
        ({"kind": "bytes"}, {}, 'image_feature: "image" has no encoding; an image of bytes has encoding'),
        ({"kind": "float"}, {}, 'image_feature: "image" has no shape; write shape: [HEIGHT, WIDTH, CHANNELS]'),
        ({"kind": "float", "shape": (784,)}, {}, 'image_feature: "image" has shape [784]; small_cnn needs'),
        (
            {"kind": "bytes", "encoding": "raw", "dtype": "uint8", "shape": (None, None, 3)},
            {"image_height": 8, "image_width": 8},
            'image_feature: "image" has shape [null, null, 3], and numbers do not say how they are divided',
        ),
        (
            {"kind": "bytes", "encoding": "raw", "dtype": "uint8", "shape": (8, 8, 3)},
            {"image_channels": 1},
            'image_channels: 1, but "image" has 3 channels, which are not converted',
        ),
        ({"kind": "bytes", "encoding": "jpeg", "shape": (8, 8, 4)}, {}, 'image_channels: "image" cannot be decoded'),
        (
            {"kind": "bytes", "encoding": "jpeg"},
            {"image_height": 8},
            'image_width: state image_width and image_channels, because data.features gives "image" an incomplete',
        ),
        (
            {"kind": "bytes", "encoding": "png", "shape": (64, 64, 1)},
            {"model_name": "ConvNeXtTiny"},
            "model_name: Conv",
        ),
    ],
)
def test_an_image_that_could_not_be_decoded_or_fed_to_the_model_is_found(
    members: dict[str, Any], options: dict[str, Any], problem: str
) -> None:
    """TensorFlow would say so on a node, in words of its own."""
    splits = ("train", "validation")
    found = mistakes(TrainingOptions(**options), features=image(**members), splits=splits, world_size=2)
    assert (1, True) == (len(found), found[0].startswith(problem)), found


@pytest.mark.parametrize(
    "members",
    [
        {"kind": "bytes", "encoding": "image", "shape": (None, None, 3)},
        {"kind": "bytes", "encoding": "png"},
        {"kind": "bytes", "encoding": "raw", "dtype": "uint8", "shape": (8, 8, 1)},
        {"kind": "float", "shape": (28, None, 1)},
    ],
)
def test_images_of_any_size_are_resized(members: dict[str, Any]) -> None:
    """The options have the size of the model's input."""
    options = TrainingOptions(image_height=8, image_width=8, image_channels=members.get("shape", (1,))[-1])
    assert [] == mistakes(options, features=image(**members), splits=("train", "validation"), world_size=2)


def test_a_table_needs_a_model_of_ones_own() -> None:
    """Its features are no image, so the models by name do not apply."""
    options = TrainingOptions(model_module="scripts/net.py")
    features = image(kind="float", shape=(20,))
    assert [] == mistakes(options, features=features, splits=("train", "validation"), world_size=2)
