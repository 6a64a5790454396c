"""Options that do not fit the data: each text begins with the option to change and says what the data have."""

from __future__ import annotations

from typing import Any

import pytest

from shared.configuration import misfits
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
            'image_feature: the data have no feature "pixels"; ' + KNOWN,
        ),
        (
            {"label_feature": "class"},
            'label_feature: the data have no feature "class"; ' + KNOWN,
        ),
        ({"label_feature": "image"}, 'label_feature: "image" is no label; a label is one int64 number'),
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
