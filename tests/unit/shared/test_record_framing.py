"""The framing is TensorFlow's, to the byte."""

from __future__ import annotations

from shared.record_framing import FRAME_OVERHEAD_BYTES, frame_record, mask_crc, masked_crc32c

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
