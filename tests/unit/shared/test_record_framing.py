"""The framing is TensorFlow's, to the byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.record_framing import FRAME_OVERHEAD_BYTES, are_masked, frame_record, mask_crc, masked_crc32c

WRITTEN_BY_TENSORFLOW = bytes.fromhex(
    "0800000000000000ff86240f6c616e6466616c6cbfa64497000000000000000029039807d8ea82a2"
)
"""tf.io.TFRecordWriter of TensorFlow 2.18.1 writing b"landfall" and b""."""


def test_frames_are_what_tensorflow_writes() -> None:
    """Two framed payloads, one of them empty, equal the file that TensorFlow wrote of them."""
    assert frame_record(b"landfall") + frame_record(b"") == WRITTEN_BY_TENSORFLOW


def test_overhead_is_what_a_frame_adds() -> None:
    """A frame is its payload and sixteen bytes."""
    assert len(frame_record(b"x" * 100)) == 100 + FRAME_OVERHEAD_BYTES


def test_mask_is_the_documented_rotation() -> None:
    """The CRC32C check value 0xE3069283 of "123456789" is rotated by 15 bits and moved by the constant."""
    crc = 0xE3069283
    rotated = ((crc >> 15) | (crc << 17)) & 0xFFFFFFFF
    assert mask_crc(crc) == (rotated + 0xA282EAD8) % 2**32
    assert masked_crc32c(b"123456789") == mask_crc(crc)


@given(st.lists(st.integers(0, 2**32 - 1), max_size=300))
def test_many_are_masked_as_one_is(crcs: list[int]) -> None:
    """Any number of CRCs are compared with what masking each of them gives."""
    assert are_masked(crcs, [mask_crc(crc) for crc in crcs])


@pytest.mark.parametrize("wrong", [0, 1, 41, 42])
@pytest.mark.parametrize("bit", [0, 15, 31])
def test_one_wrong_among_many(wrong: int, bit: int) -> None:
    """A single bit in a single masked CRC is seen, wherever it is."""
    crcs = [0, 0xFFFFFFFF, *range(1, 42)]
    masked = [mask_crc(crc) for crc in crcs]
    masked[wrong] ^= 1 << bit
    assert not are_masked(crcs, masked)
