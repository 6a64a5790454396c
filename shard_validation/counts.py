"""Record counts that a dataset states of itself: ``dataset.json``, or TensorFlow Datasets' ``dataset_info.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shared.shard_names import MAX_SHARDS_PER_SPLIT

DATASET_FILE = "dataset.json"
TFDS_FILE = "dataset_info.json"
COUNT_FILES = (DATASET_FILE, TFDS_FILE)
MAX_COUNTS_BYTES = 32 << 20
FORMAT_VERSION = 1


class CountsError(ValueError):
    """The file cannot be understood; the message says which member, what was expected and what was seen."""


@dataclass(frozen=True, kw_only=True)
class StatedCounts:
    """What one of the two files states."""

    source: str
    """Its name."""
    splits: Mapping[str, tuple[int, ...]]
    """Records of each shard of a split, by index."""


def read_counts(name: str, content: bytes) -> StatedCounts:
    """Read either file; which one follows from its name. Raises CountsError."""
    if len(content) > MAX_COUNTS_BYTES:
        raise CountsError(f"{name}: should be at most {MAX_COUNTS_BYTES} bytes, was {len(content)}")
    try:
        members = json.loads(content)
        pairs = _of_tfds(members) if name == TFDS_FILE else _of_landfall(members)
        splits = {split: tuple(_count(n) for n in counts) for split, counts in pairs}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CountsError(f"{name}: should state record counts of shards, was not understood: {error!r}") from error
    if any(len(counts) > MAX_SHARDS_PER_SPLIT for counts in splits.values()):
        raise CountsError(f"{name}: should state at most {MAX_SHARDS_PER_SPLIT} shards of a split, stated more")
    return StatedCounts(source=name, splits=splits)


def _of_landfall(members: Mapping[str, Any]) -> list[tuple[str, list[Any]]]:
    if members["format_version"] != FORMAT_VERSION:
        raise ValueError(f"format_version should be {FORMAT_VERSION}, was {members['format_version']!r}")
    return [(name, [s["num_records"] for s in split["shards"]]) for name, split in members["splits"].items()]


def _of_tfds(members: Mapping[str, Any]) -> list[tuple[str, list[Any]]]:
    """As its protobuf is written to JSON: 64-bit numbers are texts, empty lists are left out."""
    return [(split["name"], split.get("shardLengths", [])) for split in members["splits"]]


def _count(value: Any) -> int:
    count = int(value)
    if isinstance(value, (bool, float)) or count < 0:
        raise ValueError(f"a record count should be a whole number from 0, was {value!r}")
    return count
