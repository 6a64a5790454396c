"""Requirements: what a pipeline may state, and what is rejected."""

from __future__ import annotations

import json

import pytest

from shard_validation import DataRequirements, DriftPolicy, ImagePolicy, Limits
from shared.manifest import FeatureSpec, SchemaError

FULL = DataRequirements(
    data_format="tfrecord",
    features=(FeatureSpec(name="label", kind="int64", minimum=0), FeatureSpec(name="image", kind="bytes")),
    splits=("train", "validation"),
    label_feature="label",
    images=ImagePolicy(decode="all"),
    limits=Limits(max_reasons=5),
    counts="required",
    drift=DriftPolicy(action="block"),
)


def test_through_json() -> None:
    """Requirements come back from JSON as they were."""
    assert FULL == DataRequirements.from_json(json.loads(json.dumps(FULL.to_json())))


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"formats": "tfrecord"}, "unknown members"),
        ({"data_format": "csv"}, "data_format: 'csv' is not one of"),
        ({"images": {"decode": "some"}}, "images.decode: 'some' is not one of"),
        ({"images": {"sample_every": 0}}, "images.sample_every"),
        ({"images": "all"}, "images: 'all' is not a mapping"),
        ({"limits": {"max_reasons": 0}}, "limits.max_reasons: 0 is not a positive integer"),
        ({"limits": {"max_reasons": True}}, "limits.max_reasons"),
        ({"drift": {"action": "panic"}}, "drift.action: 'panic' is not one of"),
        ({"drift": {"max_label_distance": -1}}, "drift.max_label_distance"),
        ({"counts": "maybe"}, "counts: 'maybe' is not one of"),
        ({"small_shard_ratio": 2}, "small_shard_ratio: 2 is not between 0 and 1"),
        ({"features": [{"name": "a", "kind": "int64"}, {"name": "a", "kind": "float"}]}, "a name occurs twice"),
        ({"features": [{"name": "a", "kind": "int64"}], "label_feature": "b"}, "label_feature: 'b' is not one of"),
    ],
)
def test_invalid_requirements(members: dict[str, object], message: str) -> None:
    """Unknown or inconsistent members are rejected with the name of the field."""
    with pytest.raises(SchemaError, match=message):
        DataRequirements.from_json(members)


def test_label() -> None:
    """The label is the feature that the pipeline names, otherwise the first scalar int64 feature."""
    boxes, label = FeatureSpec(name="boxes", kind="int64", shape=(4,)), FeatureSpec(name="y", kind="int64")
    seen = [
        DataRequirements(features=(boxes, label)).label,
        DataRequirements(features=(boxes, label), label_feature="boxes").label,
        DataRequirements().label,
    ]
    assert ["y", "boxes", None] == seen
