"""The manifest survives a round trip, and its fingerprint depends on the data alone."""

from __future__ import annotations

import json

import pytest

from shared.manifest import FeatureSpec, Manifest, ManifestError, ManifestShard, SchemaError, fingerprint


def shard(index: int, *, crc32c: str = "00000000", split: str = "train") -> ManifestShard:
    return ManifestShard(
        split=split,
        index=index,
        num_shards=2,
        name=f"{split}-{index:05}-of-00002.tfrecord",
        size_bytes=100 + index,
        crc32c=crc32c,
        num_records=10 + index,
    )


def manifest() -> Manifest:
    shards = (shard(0), shard(1))
    return Manifest(
        dataset="digits",
        version="v1",
        generation=1,
        fingerprint=fingerprint(shards),
        data_format="tfrecord",
        features=(
            FeatureSpec(name="image", kind="bytes", encoding="png", shape=(8, 8, None)),
            FeatureSpec(name="label", kind="int64", minimum=0, maximum=9, allowed=(1, 2)),
        ),
        shards=shards,
        statistics={"train": {"num_records": 21}},
    )


def test_a_manifest_survives_a_round_trip() -> None:
    """What was written is what is read, features and open dimensions included."""
    assert Manifest.from_json(manifest().to_json()) == manifest()


def test_records_are_counted_by_split() -> None:
    """A split's records are the sum over its shards, and nothing for a split that is not there."""
    assert (manifest().num_records("train"), manifest().num_records("test")) == (21, 0)


def test_fingerprint_ignores_order_and_sees_content() -> None:
    """The same shards in another order are the same data; another CRC is not."""
    assert fingerprint([shard(1), shard(0)]) == fingerprint([shard(0), shard(1)])
    assert fingerprint([shard(0), shard(1, crc32c="00000001")]) != fingerprint([shard(0), shard(1)])


def test_a_manifest_whose_shards_were_changed_is_refused() -> None:
    """A fingerprint that does not fit the listed shards raises, naming both."""
    members = json.loads(manifest().to_json())
    members["shards"][0]["size_bytes"] += 1
    with pytest.raises(ManifestError, match="digits/v1: fingerprint of its shards"):
        Manifest.from_json(json.dumps(members))


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"format_version": 99}'])
def test_what_is_no_manifest_is_refused(text: str) -> None:
    """Anything else than a manifest of this format version raises a ManifestError."""
    with pytest.raises(ManifestError, match="not a manifest"):
        Manifest.from_json(text)


def test_the_content_of_what_is_no_manifest_is_not_quoted_whole() -> None:
    """The error of Python's decoder holds all bytes, and a version may be any text."""
    for content in (b"\xff" * 100_000, json.dumps({"format_version": "x" * 100_000}).encode()):
        with pytest.raises(ManifestError) as raised:
            Manifest.from_json(content)
        assert len(str(raised.value)) < 1000


@pytest.mark.parametrize(
    ("members", "complaint"),
    [
        ({"name": "x", "kind": "int32"}, "kind 'int32' is not one of"),
        ({"name": "x", "kind": "int64", "encoding": "png"}, "encoding belongs to kind bytes"),
        ({"name": "x", "kind": "bytes", "encoding": "raw"}, "dtype is required with encoding raw"),
        ({"name": "x", "kind": "bytes", "dtype": "uint8"}, "dtype is required with encoding raw"),
        ({"name": "x", "kind": "int64", "shape": [-1]}, "has a negative size"),
        ({"name": "x", "kind": "int64", "colour": 1}, "unknown members"),
    ],
)
def test_a_feature_that_contradicts_itself_is_refused(members: dict[str, object], complaint: str) -> None:
    """A feature's description is checked before any shard is judged by it."""
    with pytest.raises(SchemaError, match=complaint):
        FeatureSpec.from_json(members)
