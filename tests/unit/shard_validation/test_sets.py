"""The shards of a version as a set: all problems that no single shard shows are reported."""

from __future__ import annotations

import json

import pytest

from shard_validation import (
    CountsError,
    DataRequirements,
    StatedCounts,
    check_set,
    read_counts,
)
from shard_validation import (
    ReasonCode as Code,
)
from shared.manifest import ManifestShard

REQUIREMENTS = DataRequirements(splits=("train",))


def shard(index: int, num_shards: int = 4, split: str = "train", **changes: object) -> ManifestShard:
    """Return a sound shard of 100 records with distinct content."""
    members = {
        "split": split,
        "index": index,
        "num_shards": num_shards,
        "name": f"{split}-{index:05d}-of-{num_shards:05d}",
        "size_bytes": 1000,
        "crc32c": f"{index:04x}{len(split):04x}",
        "num_records": 100,
    }
    return ManifestShard(**{**members, **changes})  # type: ignore[arg-type]


WHOLE = [shard(i) for i in range(4)]


def codes(shards: list[ManifestShard], requirements: DataRequirements = REQUIREMENTS, **more: object) -> list[Code]:
    """Return the codes of all reasons."""
    return [r.code for r in check_set(shards, requirements, **more)]  # type: ignore[arg-type]


def test_a_complete_set_gives_no_reason() -> None:
    """A complete set of distinct shards gives no reason."""
    assert [] == codes(WHOLE)


@pytest.mark.parametrize(
    ("shards", "code"),
    [
        pytest.param(WHOLE[:3], Code.SET_SHARD_MISSING, id="index missing"),
        pytest.param([*WHOLE[:3], shard(3, 5)], Code.SET_SIZE_CONTRADICTORY, id="another N"),
        pytest.param(
            [*WHOLE, shard(3, name="train-00003-of-00004.tfrecord", crc32c="0")],
            Code.SET_NAMES_COLLIDE,
            id="two files for one index",
        ),
        pytest.param([*WHOLE[:3], shard(3, crc32c=WHOLE[0].crc32c)], Code.SET_SAME_CONTENT, id="same content"),
        pytest.param([*WHOLE[:3], shard(3, num_records=0)], Code.SET_EMPTY_SHARD, id="empty"),
        pytest.param([*WHOLE[:3], shard(3, num_records=9)], Code.SET_SMALL_SHARD, id="far smaller"),
        pytest.param([], Code.SET_SPLIT_MISSING, id="no shard at all"),
    ],
)
def test_each_problem_of_a_set_has_its_code(shards: list[ManifestShard], code: Code) -> None:
    """Each problem has its code, and gives no other reason."""
    assert [code] == codes(shards)


def test_all_problems_of_a_set_are_reported() -> None:
    """A set with several problems reports all of them, with the shards' names."""
    shards = [shard(0), shard(1, crc32c=shard(0).crc32c), shard(3, num_records=0), shard(0, 1, "validation")]
    reasons = check_set(shards, DataRequirements(splits=("train", "test")))
    expected = {
        (Code.SET_SPLIT_MISSING, "test"),
        (Code.SET_SAME_CONTENT, "train-00001-of-00004"),
        (Code.SET_SHARD_MISSING, "train"),
        (Code.SET_EMPTY_SHARD, "train-00003-of-00004"),
    }
    assert expected == {(r.code, r.shard) for r in reasons}


def test_small_last_shard_where_it_is_allowed() -> None:
    """The pipeline's ratio decides: 0 allows shards of any size."""
    shards = [*WHOLE[:3], shard(3, num_records=1)]
    assert [] == codes(shards, DataRequirements(splits=("train",), small_shard_ratio=0))


def test_formats_mixed() -> None:
    """Shards of two formats or compressions do not make one version."""
    formats = {s.name: "tfrecord" for s in WHOLE[:3]} | {WHOLE[3].name: "tfrecord gzip"}
    assert [Code.SET_FORMATS_MIXED] == codes(WHOLE, formats=formats)


def test_long_lists_are_cut() -> None:
    """A message names ten missing indices and the number of the others."""
    (reason,) = check_set([shard(0, 100_000)], REQUIREMENTS)
    assert "99999 missing: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 99989 more" == reason.seen


def test_stated_counts() -> None:
    """Counts of `dataset.json` must hold, for each shard and for the number of shards."""
    counts = read_counts(
        "dataset.json",
        json.dumps(
            {"format_version": 1, "splits": {"train": {"shards": [{"num_records": n} for n in (100, 99, 100)]}}}
        ).encode(),
    )
    reasons = check_set(WHOLE, REQUIREMENTS, counts=counts)
    assert ["train", WHOLE[1].name] == [r.shard for r in reasons]
    assert {Code.SET_COUNT_DIFFERS} == {r.code for r in reasons}


def test_counts_of_tensorflow_datasets() -> None:
    """`dataset_info.json` of TensorFlow Datasets is read: its 64-bit numbers are strings, empty lists are omitted."""
    content = json.dumps(
        {
            "name": "mnist",
            "splits": [{"name": "train", "numBytes": "1", "shardLengths": ["100"] * 4}, {"name": "test"}],
        }
    )
    counts = read_counts("dataset_info.json", content.encode())
    assert StatedCounts(source="dataset_info.json", splits={"train": (100,) * 4, "test": ()}) == counts
    assert [] == codes(WHOLE, counts=counts)


def test_counts_required() -> None:
    """Missing counts are a reason where the pipeline requires them; where it ignores them, counts never are."""
    assert [Code.SET_COUNTS_UNREADABLE] == codes(WHOLE, DataRequirements(counts="required"))
    wrong = StatedCounts(source="dataset.json", splits={"train": (1, 1, 1, 1)})
    assert [] == codes(WHOLE, DataRequirements(counts="ignore"), counts=wrong)


def test_split_without_counts() -> None:
    """A split without counts is a reason."""
    counts = StatedCounts(source="dataset.json", splits={})
    assert [Code.SET_COUNT_DIFFERS] == codes(WHOLE, counts=counts)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b'{"format_version": 2, "splits": {}}',
        b'{"format_version": 1, "splits": {"train": {"shards": [{"num_records": -1}]}}}',
        b'{"format_version": 1, "splits": {"train": {"shards": [{"num_records": 1.5}]}}}',
        b'{"format_version": 1, "splits": {"train": {"shards": [{"num_records": true}]}}}',
        b'{"format_version": 1, "splits": {"train": {"shards": [{"num_records": Infinity}]}}}',
        b'{"format_version": 1, "splits": {"train": {"shards": [{"num_records": 1e999}]}}}',
        b'{"format_version": 1, "splits": {"train": {"shards": 5}}}',
        b"[" * 100_000,
    ],
)
def test_unreadable_counts(content: bytes) -> None:
    """Anything but the two formats raises CountsError, and no other exception."""
    with pytest.raises(CountsError, match="record counts of shards cannot be read"):
        read_counts("dataset.json", content)


def test_a_message_about_unreadable_counts_is_bounded() -> None:
    """The message is kept in the ledger, so it shows only the beginning of what the file states."""
    content = json.dumps({"format_version": "x" * 100_000, "splits": {}}).encode()
    with pytest.raises(CountsError, match="expected 1, got 'xxx") as caught:
        read_counts("dataset.json", content)
    assert len(str(caught.value)) < 300
