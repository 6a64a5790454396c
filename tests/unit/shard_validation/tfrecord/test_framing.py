"""TFRecord framing: every way in which a record can be broken, with its code and position."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c

from shard_validation import Limits
from shard_validation import ReasonCode as Code
from shared.record_framing import frame_record, masked_crc32c
from tests.support.shards import LABEL, framed, only_reason, place, verdict_on

RECORDS = [b"first", b"the second", b"third one"]
SECOND = len(frame_record(RECORDS[0]))
THIRD = SECOND + len(frame_record(RECORDS[1]))
CHUNKS = [1, 5, 16, 1 << 20]
"""Bytes per read: records lie within a chunk, across two chunks, or across many."""


def flipped(content: bytes, offset: int, bit: int = 0) -> bytes:
    """Return the content with one bit flipped."""
    return content[:offset] + bytes([content[offset] ^ (1 << bit)]) + content[offset + 1 :]


def headed(length: int) -> bytes:
    """Return a header that claims a length, with the right CRC."""
    claimed = struct.pack("<Q", length)
    return claimed + struct.pack("<I", masked_crc32c(claimed))


@pytest.mark.parametrize("chunk_bytes", CHUNKS)
def test_sound_shard(chunk_bytes: int) -> None:
    """A sound shard is accepted with its number of records, its size and the CRC of its content."""
    content = framed(RECORDS)
    verdict = verdict_on(content, chunk_bytes=chunk_bytes)
    seen = (verdict.accepted, verdict.num_records, verdict.size_bytes, verdict.crc32c, verdict.reasons)
    assert (True, 3, len(content), f"{crc32c(content):08x}", ()) == seen
    assert sum(map(len, RECORDS)) == verdict.statistics.num_bytes


@pytest.mark.parametrize("chunk_bytes", CHUNKS)
@pytest.mark.parametrize(
    ("content", "code", "index", "offset"),
    [
        pytest.param(framed(RECORDS)[: THIRD + 7], Code.HEADER_CUT, 2, THIRD, id="header cut"),
        pytest.param(framed(RECORDS)[: THIRD + 14], Code.PAYLOAD_CUT, 2, THIRD, id="payload cut"),
        pytest.param(framed(RECORDS)[: THIRD + 12], Code.PAYLOAD_CUT, 2, THIRD, id="payload missing"),
        pytest.param(framed(RECORDS)[:-1], Code.TRAILER_CUT, 2, THIRD, id="trailer cut"),
        pytest.param(framed(RECORDS)[:-4], Code.TRAILER_CUT, 2, THIRD, id="trailer missing"),
        pytest.param(b"\x01", Code.HEADER_CUT, 0, 0, id="one byte"),
        pytest.param(framed(RECORDS[:2]) + b"\0" * 100, Code.TRAILING_BYTES, 2, THIRD, id="padded with zeros"),
        pytest.param(framed(RECORDS[:2]) + b"\0", Code.TRAILING_BYTES, 2, THIRD, id="one trailing zero"),
        pytest.param(framed(RECORDS[:2]) + b"\n", Code.HEADER_CUT, 2, THIRD, id="one trailing byte"),
        pytest.param(framed(RECORDS[:2]) + b"and then some text", Code.LENGTH_CRC, 2, THIRD, id="trailing text"),
        pytest.param(flipped(framed(RECORDS), SECOND), Code.LENGTH_CRC, 1, SECOND, id="bit in length"),
        pytest.param(flipped(framed(RECORDS), SECOND + 7, 7), Code.LENGTH_CRC, 1, SECOND, id="top bit in length"),
        pytest.param(flipped(framed(RECORDS), SECOND + 9), Code.LENGTH_CRC, 1, SECOND, id="bit in length CRC"),
        pytest.param(flipped(framed(RECORDS), SECOND + 15), Code.PAYLOAD_CRC, 1, SECOND, id="bit in payload"),
        pytest.param(flipped(framed(RECORDS), THIRD - 1), Code.PAYLOAD_CRC, 1, SECOND, id="bit in payload CRC"),
        pytest.param(framed(RECORDS[:1]) + headed(1 << 63) + b"rest", Code.RECORD_TOO_LONG, 1, SECOND, id="2^63"),
        pytest.param(framed(RECORDS[:1]) + headed(1 << 40) + b"rest", Code.RECORD_TOO_LONG, 1, SECOND, id="2^40"),
        pytest.param(framed(RECORDS[:1]) + headed(1 << 30) + b"rest", Code.PAYLOAD_CUT, 1, SECOND, id="2^30"),
        pytest.param(framed([RECORDS[0], b"", RECORDS[2]]), Code.RECORD_EMPTY, 1, SECOND, id="record of 0 bytes"),
    ],
)
def test_broken_framing(content: bytes, code: Code, index: int, offset: int, chunk_bytes: int) -> None:
    """A broken record is reported with code, index and offset, whatever the chunk size."""
    verdict = verdict_on(content, chunk_bytes=chunk_bytes)
    assert (code, index, offset) == place(verdict)
    assert f"{crc32c(content):08x}" == verdict.crc32c


def test_validation_continues_after_a_wrong_payload() -> None:
    """A payload that does not match its CRC does not end the validation: all such records are reported."""
    content = flipped(flipped(framed(RECORDS), 14), THIRD + 14)
    assert [(0, 0), (2, THIRD)] == [(r.record_index, r.byte_offset) for r in verdict_on(content).reasons]


@pytest.mark.parametrize(
    ("content", "place", "seen"),
    [
        (b"label,pixel0\n1,2", "record 0 at byte 0", "the text 'label,pixel0'"),
        (b"\n\tA poem, in lines", "record 0 at byte 0", r"the text '\n\tA poem, in'"),
        (framed(RECORDS[:2]) + b"and then some text", f"record 2 at byte {THIRD}", "the text 'and then som'"),
    ],
)
def test_text_instead_of_a_record_is_shown_as_text(content: bytes, place: str, seen: str) -> None:
    """A CSV file under a shard's name does not need to be recognised by a length of 19 digits."""
    reason = only_reason(verdict_on(content, name="train-00000-of-00001"))
    expected = f"train-00000-of-00001, {place}: expected the header of a record, got {seen}"
    assert (Code.LENGTH_CRC, expected) == (reason.code, reason.message)


def test_message_states_expected_and_seen() -> None:
    """The message alone states shard, record, position, and both values."""
    reason = only_reason(verdict_on(framed(RECORDS)[:-1], name="train-00000-of-00001"))
    expected = (
        f"train-00000-of-00001, record 2 at byte {THIRD}: expected 4 bytes of trailer, "
        "got the end of the file after 3"
    )
    assert expected == reason.message


def test_reasons_are_bounded() -> None:
    """The first of many faults are listed, and all are counted."""
    broken = b"".join(flipped(frame_record(b"payload"), 13) for _ in range(200))
    verdict = verdict_on(broken, limits=Limits(max_reasons=7))
    assert (7, 200) == (len(verdict.reasons), verdict.num_reasons)


def test_long_records_are_not_held() -> None:
    """Without features a record may exceed `max_example_bytes`; its CRC is still checked."""
    limits = Limits(max_example_bytes=10)
    content = framed([b"x" * 100])
    assert verdict_on(content, limits=limits).accepted
    assert Code.PAYLOAD_CRC == only_reason(verdict_on(flipped(content, 50), limits=limits)).code


@pytest.mark.parametrize("chunk_bytes", [50_000, 200_000, 1 << 20])
@pytest.mark.parametrize("damage", [None, 5, 250_005])
def test_content_crc_of_large_payloads(chunk_bytes: int, damage: int | None) -> None:
    """The CRC of the content is right although large payloads are read once, also in damaged shards."""
    content = framed([bytes([i]) * size for i, size in enumerate((100_000, 40_000, 10, 50_000, 60_000, 3) * 3)])
    content = content if damage is None else flipped(content, damage)
    verdict = verdict_on(content, chunk_bytes=chunk_bytes)
    assert (damage is None, f"{crc32c(content):08x}") == (verdict.accepted, verdict.crc32c)


def test_faults_in_order() -> None:
    """Wrong payloads, empty records and faulty examples are reported in the order of the records, with positions."""
    payloads = [b"first", b"", b"x" * 2000, b"no example", b""] * 200
    content = bytearray(framed(payloads))
    offsets = [0]
    for payload in payloads:
        offsets.append(offsets[-1] + len(frame_record(payload)))
    content[offsets[2] + 500] ^= 1
    content[offsets[500] + 13] ^= 1
    for chunk_bytes in (1000, 1 << 20):
        verdict = verdict_on(bytes(content), LABEL, limits=Limits(max_reasons=2000), chunk_bytes=chunk_bytes)
        assert list(enumerate(offsets[:-1])) == [(r.record_index, r.byte_offset) for r in verdict.reasons]
        assert [Code.PAYLOAD_CRC] * 2 == [verdict.reasons[i].code for i in (2, 500)]


def test_many_lengths() -> None:
    """More distinct lengths than are remembered are accepted."""
    payloads = [b"x" * n for n in range(1, 5000)]
    assert verdict_on(framed(payloads)).accepted
