"""Decompression of Snappy in pieces, as pyarrow does it, with one kind of error for malformed data."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shard_validation.parquet.decompression import ByteStream, snappy_pieces
from shard_validation.parquet.encodings import PageDataError

SNAPPY = pa.Codec("snappy")
REPETITIVE = st.lists(st.tuples(st.binary(max_size=40), st.integers(1, 60)), max_size=60).map(
    lambda parts: b"".join(part * times for part, times in parts)
)


def in_pieces(content: bytes, size: int) -> Iterator[bytes]:
    """Cut bytes up."""
    return (content[start : start + size] for start in range(0, len(content), size))


@given(content=REPETITIVE, size=st.integers(1, 100))
def test_same_bytes(content: bytes, size: int) -> None:
    """Overlapping copies and literals of every length are decompressed, whatever the size of the pieces."""
    compressed = SNAPPY.compress(content, asbytes=True)
    assert content == b"".join(snappy_pieces(ByteStream(in_pieces(compressed, size))))


def test_more_than_the_window() -> None:
    """Megabytes of literals and copies are yielded in pieces of bounded size."""
    chance = random.Random(0)  # noqa: S311 - bytes that do not compress
    content = b"".join(chance.randbytes(50_000) + bytes(30_000) + b"abc" * 9_000 for _ in range(60))
    compressed = SNAPPY.compress(content, asbytes=True)
    pieces = list(snappy_pieces(ByteStream(in_pieces(compressed, 1 << 16))))
    assert content == b"".join(pieces)
    assert max(map(len, pieces)) < 3 << 20


@given(
    content=st.binary(max_size=300),
    flips=st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255)), max_size=5),
)
def test_damaged_snappy_data(content: bytes, flips: list[tuple[int, int]]) -> None:
    """Damaged data give bytes of the stated size, or PageDataError."""
    damaged = bytearray(SNAPPY.compress(content * 3, asbytes=True))
    for place, mask in flips:
        damaged[place % len(damaged)] ^= mask
    try:
        size = sum(map(len, snappy_pieces(ByteStream(in_pieces(bytes(damaged[:400]), 7)))))
    except PageDataError:
        return
    stated, shift = 0, 0
    for byte in damaged:
        stated, shift = stated | (byte & 0x7F) << shift, shift + 7
        if byte < 0x80:
            break
    assert stated == size


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "1 bytes too early"),
        (b"\xff" * 6, "does not begin with a size"),
        (b"\x05\x01\x01", "refers back 1 bytes, of 0"),
        (b"\x05\x00a\x09\x00\x00", "refers back 0 bytes"),
        (b"\x02\x10abcde", "3 bytes longer"),
        (b"\x05\x10ab", "3 bytes too early"),
        (b"\x05\xfc\xff\xff\xff\xff", "the page ends"),
    ],
)
def test_malformed_data_are_described(content: bytes, words: str) -> None:
    """The message names the problem: no data, an endless size, copies of nothing, too much, too little."""
    with pytest.raises(PageDataError, match=words):
        list(snappy_pieces(ByteStream(iter((content,)))))
