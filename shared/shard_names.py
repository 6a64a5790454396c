"""Names of datasets, versions and shards, by the conventions of TensorFlow, TFDS and Hugging Face.

Accepted names; ``[.ext]`` stands for ``.tfrecord``, ``.tfrecords``, ``.tfrecord.gz`` or ``.parquet``, or nothing::

    train-00003-of-00128[.ext]
    mnist-train.tfrecord-00003-of-00128
    train-00003-of-00010-1a2b3c4d.parquet
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

DataFormat = Literal["tfrecord", "parquet"]

MAX_SHARDS_PER_SPLIT = 100_000
"""The conventions number shards with five digits."""

MAX_NAME_CHARS = 255
DATASET_PATTERN = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}", re.ASCII)
DATASET_MEANING = "1 to 63 lower-case letters, digits, - and _"
VERSION_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
VERSION_MEANING = "1 to 64 letters, digits, . - and _"

SPLIT_KEY = "split="
"""Folder of a Hive partition that names the split, as Spark's ``partitionBy("split")`` writes it."""
SPLIT_WORDS = {
    "train": "train", "training": "train", "validation": "validation", "valid": "validation", "val": "validation",
    "dev": "validation", "test": "test", "testing": "test", "eval": "test", "evaluation": "test",
}  # fmt: skip
"""Name of a folder or file → the split for which the Hugging Face Hub uses it."""

_SPLIT = r"(?P<split>[A-Za-z][A-Za-z0-9_]{0,63})"
_OF = r"(?P<index>\d{5,6})-of-(?P<count>\d{5,6})"
_PATTERNS = (
    re.compile(rf"{_SPLIT}-{_OF}(?:\.tfrecords?(?:\.gz)?|\.parquet)?", re.ASCII),
    re.compile(rf"[A-Za-z][A-Za-z0-9_]{{0,127}}-{_SPLIT}\.tfrecord-{_OF}", re.ASCII),
    re.compile(rf"{_SPLIT}-{_OF}-[0-9a-f]{{4,64}}\.parquet", re.ASCII),
)


@dataclass(frozen=True, kw_only=True)
class ShardName:
    """The parts of a shard's file name."""

    name: str
    """The whole file name."""
    split: str
    """``train``, ``validation``, ``test`` or another name."""
    index: int
    """0 ≤ index < num_shards."""
    num_shards: int
    """The N of ``-of-N``."""


class ShardNameError(ValueError):
    """The file name is not a shard name; the message says why."""


def parse_shard_name(name: str) -> ShardName:
    """Parse a shard's file name, without folders.

    Raises ShardNameError if the name follows no convention, or its index is not below its number of shards.
    """
    if len(name) > MAX_NAME_CHARS:
        raise ShardNameError(f"shard name {name[:40]!r}… has {len(name)} characters, the limit is {MAX_NAME_CHARS}")
    match = next((m for p in _PATTERNS if (m := p.fullmatch(name))), None)
    if match is None:
        raise ShardNameError(f"{name!r} is not a shard name; name it like train-00003-of-00128.tfrecord")
    return _checked(name, match)


def split_in_name(path: str) -> str | None:
    """Return the split in a file's name with ``-of-N``, in any folder; None for other names."""
    try:
        return parse_shard_name(path.rpartition("/")[2]).split
    except ShardNameError:
        return None


def is_among(shard: str, names: Iterable[str]) -> bool:
    """Whether a shard is among some files. Its name may lack the suffix for the format."""
    return any(name == shard or name.startswith(f"{shard}.") for name in names)


def _checked(name: str, match: re.Match[str]) -> ShardName:
    index, count = int(match["index"]), int(match["count"])
    if not 0 < count <= MAX_SHARDS_PER_SPLIT:
        raise ShardNameError(f"{name}: the N of -of-N is {count}, outside 1 to {MAX_SHARDS_PER_SPLIT}")
    if index >= count:
        raise ShardNameError(f"{name}: shard index {index} is not below {count}; indices count from 0")
    return ShardName(name=name, split=match["split"], index=index, num_shards=count)
