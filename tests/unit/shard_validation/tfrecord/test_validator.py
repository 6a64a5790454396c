"""GZIP and ZLIB shards: inflated in bounded memory, to a bounded size, and to the end of the file."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from collections.abc import Callable

import pytest
from crc32c import crc32c

from shard_validation import Limits
from shard_validation import ReasonCode as Code
from shared.record_framing import frame_record
from tests.support.shards import framed, only_reason, place, verdict_on

SHARD = framed([bytes([i]) * 1000 for i in range(100)])
COMPRESS: list[Callable[[bytes], bytes]] = [gzip.compress, zlib.compress]


@pytest.mark.parametrize("chunk_bytes", [1, 100, 1 << 20])
@pytest.mark.parametrize("compress", COMPRESS)
def test_sound_stream(compress: Callable[[bytes], bytes], chunk_bytes: int) -> None:
    """A compressed shard is accepted; its CRC and size are those of the stored bytes."""
    content = compress(SHARD)
    verdict = verdict_on(content, chunk_bytes=chunk_bytes)
    seen = (verdict.accepted, verdict.num_records, verdict.size_bytes, verdict.crc32c)
    assert (True, 100, len(content), f"{crc32c(content):08x}") == seen


@pytest.mark.parametrize("compress", COMPRESS)
def test_cut_stream(compress: Callable[[bytes], bytes]) -> None:
    """A stream that ends early is rejected at the end of the file, with the first incomplete record."""
    content = compress(SHARD)[:-5]
    code, _, offset = place(verdict_on(content))
    assert (Code.COMPRESSION_CUT, len(content)) == (code, offset)


@pytest.mark.parametrize("compress", COMPRESS)
def test_corrupt_stream(compress: Callable[[bytes], bytes]) -> None:
    """A stream with a wrong checksum is rejected."""
    content = compress(SHARD)
    assert Code.COMPRESSION_CORRUPT == only_reason(verdict_on(content[:-6] + b"\xff" + content[-5:])).code


@pytest.mark.parametrize("compress", COMPRESS)
def test_bytes_after_the_stream(compress: Callable[[bytes], bytes]) -> None:
    """Bytes after the end of a stream are rejected, with their position in the file."""
    content = compress(SHARD)
    assert (Code.TRAILING_BYTES, 100, len(content)) == place(verdict_on(content + b"more"))


@pytest.mark.parametrize("chunk_bytes", [1, 7, 1 << 20])
def test_two_members(chunk_bytes: int) -> None:
    """Two GZIP members are one shard, as in RFC 1952 and TensorFlow; a record may span them."""
    middle = len(SHARD) // 2 + 7
    content = gzip.compress(SHARD[:middle]) + gzip.compress(SHARD[middle:])
    verdict = verdict_on(content, chunk_bytes=chunk_bytes)
    assert (True, 100) == (verdict.accepted, verdict.num_records)


def test_second_member_cut() -> None:
    """A second member that is cut off is rejected."""
    content = gzip.compress(SHARD) + gzip.compress(SHARD)[:-1]
    assert (Code.COMPRESSION_CUT, 200, len(content)) == place(verdict_on(content))


def test_broken_record_inside() -> None:
    """Offsets of records are positions in the inflated content."""
    content = gzip.compress(SHARD[: 1016 * 3 + 20] + b"!" + SHARD[1016 * 3 + 21 :])
    assert (Code.PAYLOAD_CRC, 3, 3 * 1016) == place(verdict_on(content))


def test_bomb_of_zeros() -> None:
    """A GZIP bomb of zeros is rejected at its first header, with little memory."""
    bomb = gzip.compress(bytes(200 << 20), 9)
    tracemalloc.start()
    verdict = verdict_on(bomb)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (Code.LENGTH_CRC, 0, 0) == place(verdict)
    assert peak_bytes < 8 << 20


def test_bomb_of_sound_records() -> None:
    """A bomb of sound records is rejected at the ratio that the pipeline allows; one block is held at a time."""
    record = frame_record(bytes(1 << 20))
    stream = zlib.compressobj(9)
    bomb = b"".join([*(stream.compress(record) for _ in range(100)), stream.flush()])
    tracemalloc.start()
    verdict = verdict_on(bomb, limits=Limits(max_inflation=100))
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert Code.COMPRESSION_BOMB == only_reason(verdict).code
    assert peak_bytes < 8 << 20


def test_inflated_size_is_bounded() -> None:
    """The inflated size has its own limit."""
    verdict = verdict_on(gzip.compress(SHARD), limits=Limits(max_inflated_bytes=50_000))
    assert Code.COMPRESSION_BOMB == only_reason(verdict).code


def test_no_records() -> None:
    """A well-formed empty stream is a shard without records."""
    assert (Code.NO_RECORDS, None, None) == place(verdict_on(gzip.compress(b"")))
