"""The shards of the validator benchmark: accepted, the same each time, and with the stated lengths."""

from __future__ import annotations

import statistics
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.benchmarks.validator import write_varied_shard
from bench.workers.validator_ours import schema

FRAMING_BYTES = 16
"""Eight of the length, four each of the two CRCs."""


def lengths(content: bytes) -> Iterator[int]:
    """The bytes of every record."""
    offset = 0
    while offset < len(content):
        (length,) = struct.unpack_from("<Q", content, offset)
        yield length
        offset += FRAMING_BYTES + length


def test_records_of_many_lengths(tmp_path: Path) -> None:
    """Few are equal, half of them are below the stated size, and some are far above and far below it."""
    shard = write_varied_shard(tmp_path, size=3_072, total_bytes=4 << 20)
    seen = sorted(lengths(shard.path.read_bytes()))
    assert pytest.approx(3_072, rel=0.1) == statistics.median(seen)
    assert (True, True, True) == (seen[0] < 3_072 / 2, seen[-1] > 2 * 3_072, len(set(seen)) > len(seen) // 2)


def test_a_varied_shard_is_accepted_with_its_schema(tmp_path: Path) -> None:
    """The worker accepts only shards that pass its schema."""
    shard = write_varied_shard(tmp_path, size=3_072, total_bytes=1 << 20)
    content = shard.path.read_bytes()
    assert len(list(lengths(content))) == schema(str(shard.path), shard.size, shard.encoding)


def test_a_varied_shard_is_the_same_each_time(tmp_path: Path) -> None:
    """Two measurements compare the same bytes."""
    first, again = (write_varied_shard(tmp_path, size=110_000, total_bytes=1 << 20).path.read_bytes() for _ in "ab")
    assert first == again
