"""What records were packed from: written within bounds, and read from a file that may say anything."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shared.source_names import (
    MAX_FILE_BYTES,
    MAX_SOURCE_CHARS,
    bounded_sources,
    packed_from,
    read_sources,
)

SHARD, CRC = "train-00000-of-00001.tfrecord", "0badc0de"


def stated(**members: Any) -> bytes:
    """A dataset.json with one shard."""
    shard = {"name": SHARD, "crc32c": CRC, "sources": ["a/1.png", "a/2.png"], **members}
    return json.dumps({"splits": {"train": {"shards": [shard]}}}).encode()


def test_the_names_of_a_shard_are_read() -> None:
    """They have the order of its records."""
    assert ["a/1.png", "a/2.png"] == read_sources(stated(), shard=SHARD, crc32c=CRC)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"?",
        b"\xff",
        b"[" * 200_000,
        b"[]",
        b'{"splits": []}',
        b'{"splits": {"train": {"shards": {}}}}',
        b'{"splits": {"train": {"shards": [7]}}}',
        stated(name="other"),
        stated(crc32c="00000000"),
        stated(sources="a/1.png"),
        stated() + b" " * MAX_FILE_BYTES,
    ],
    ids=range(12),
)
def test_a_file_that_does_not_know_the_content_has_no_names(content: bytes) -> None:
    """The same holds for a file that is damaged, hostile or too large."""
    assert [] == read_sources(content, shard=SHARD, crc32c=CRC)


@pytest.mark.parametrize(
    ("sources", "record", "words"),
    [
        (["a", "b"], 1, "packed from b"),
        (["a", "b"], 2, ""),
        (["a", "b"], -1, ""),
        ([7], 0, ""),
        ([""], 0, ""),
        (["a\nb\x1b[2J"], 0, "packed from a\\nb\\x1b[2J"),
    ],
)
def test_a_name_is_shown_on_one_line(sources: list[Any], record: int, words: str) -> None:
    """A record that has none is left without."""
    assert words == packed_from(sources, record)
    assert len(packed_from(["x" * 10_000], 0)) < MAX_SOURCE_CHARS + 20


def test_names_are_bounded_one_by_one_and_together() -> None:
    """A long one keeps its end; a shard whose names exceed the rest of the budget has none."""
    long = "folder/" * 100 + "1.png"
    (kept,), size = bounded_sources([long], 1000)
    assert (MAX_SOURCE_CHARS, True, True) == (len(kept), kept.startswith("…"), kept.endswith("/1.png"))
    assert ([], 0) == bounded_sources([long], size - 1)
