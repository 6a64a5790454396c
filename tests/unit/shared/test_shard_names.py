"""Names of shards: what is understood, and what is refused."""

from __future__ import annotations

import pytest

from shared.shard_names import MAX_SHARDS_PER_SPLIT, ShardName, ShardNameError, parse_shard_name


@pytest.mark.parametrize(
    ("name", "split", "index", "num_shards"),
    [
        ("train-00003-of-00128", "train", 3, 128),
        ("train-00003-of-00128.tfrecord", "train", 3, 128),
        ("validation-00000-of-00002.tfrecords", "validation", 0, 2),
        ("train-00003-of-00128.tfrecord.gz", "train", 3, 128),
        ("test-00001-of-00002.parquet", "test", 1, 2),
        ("mnist-train.tfrecord-00003-of-00128", "train", 3, 128),
        ("train-00003-of-00010-1a2b3c4d5e6f7a8b.parquet", "train", 3, 10),
    ],
)
def test_every_convention_is_understood(name: str, split: str, index: int, num_shards: int) -> None:
    """Plain, TensorFlow Datasets' and Hugging Face's names give split, index and number."""
    assert ShardName(name=name, split=split, index=index, num_shards=num_shards) == parse_shard_name(name)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("README.md", "is not a shard name"),
        ("train-3-of-8.tfrecord", "is not a shard name"),
        ("train-00003-of-00008.csv", "is not a shard name"),
        ("../train-00003-of-00008", "is not a shard name"),
        ("train-00003-of-00008\n", "is not a shard name"),
        ("train-٠٠٠٠٣-of-00008", "is not a shard name"),
        ("train-00008-of-00008", "index 8 is not below 8"),
        ("train-00000-of-00000", "outside 1 to"),
        (f"train-000000-of-{MAX_SHARDS_PER_SPLIT + 1}", "outside 1 to"),
        ("t" * 300, "has 300 characters, the limit is 255"),
    ],
)
def test_what_is_no_shard_name_is_refused_with_what_was_expected(name: str, complaint: str) -> None:
    """A name that follows no convention, or contradicts itself, raises and says what it should have been."""
    with pytest.raises(ShardNameError, match=complaint):
        parse_shard_name(name)
