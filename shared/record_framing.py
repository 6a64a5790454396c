"""TFRecord framing: the layout of a record in a shard.

A record is ``length`` (uint64, little endian), the masked CRC32C of those eight bytes, the payload, and
the masked CRC32C of the payload.
Source: tensorflow/core/lib/io/record_writer.cc and crc32c.h (the mask).
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal

from crc32c import crc32c

HEADER_BYTES = 12
TRAILER_BYTES = 4
FRAME_OVERHEAD_BYTES = HEADER_BYTES + TRAILER_BYTES

GZIP_MAGIC = b"\x1f\x8b"
Compression = Literal["", "gzip", "zlib"]
"""Every compression that the validator accepts and the training reads."""

_MASK_DELTA = 0xA282EAD8
_UINT32 = 0xFFFFFFFF
_HEADER = struct.Struct("<QI")
_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")


def mask_crc(crc: int) -> int:
    """Mask a CRC32C as TFRecord stores it, so that a CRC over data that contain CRCs stays meaningful."""
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & _UINT32


def are_masked(crcs: Sequence[int], masked: Sequence[int]) -> bool:
    """Whether ``masked`` contains the masked CRCs of ``crcs``.

    All masks are computed in one step: each CRC has 64 bits of a long integer, of which 32 are space for bits that
    are shifted or carried out.
    """
    low, delta = _lanes(len(crcs))
    lanes = int.from_bytes(array("Q", crcs), sys.byteorder)
    rotated = (lanes >> 15 | lanes << 17) & low
    return rotated + delta & low == int.from_bytes(array("Q", masked), sys.byteorder)


@lru_cache(maxsize=16)
def _lanes(number: int) -> tuple[int, int]:
    one_each = int.from_bytes(array("Q", [1]) * number, sys.byteorder)
    return one_each * _UINT32, one_each * _MASK_DELTA


def masked_crc32c(data: bytes | memoryview) -> int:
    """Return the masked CRC32C (Castagnoli) of ``data``."""
    return mask_crc(crc32c(data))


def frame_record(payload: bytes) -> bytes:
    """Return a payload framed as one TFRecord record."""
    length = _LENGTH.pack(len(payload))
    return b"".join((_HEADER.pack(len(payload), masked_crc32c(length)), payload, _CRC.pack(masked_crc32c(payload))))


def is_record_header(head: bytes) -> bool:
    """Return whether bytes begin with the header of a record."""
    return len(head) >= HEADER_BYTES and masked_crc32c(head[:8]) == int.from_bytes(head[8:HEADER_BYTES], "little")


def compression_of(head: bytes) -> Compression:
    """Return the compression of a TFRecord shard from its first bytes, because the name may lack the suffix."""
    if is_record_header(head):
        return ""
    if head.startswith(GZIP_MAGIC):
        return "gzip"
    return "zlib" if _is_zlib_header(head) else ""


def compression_of_file(path: Path) -> Compression:
    """Return the compression of a TFRecord shard. Raises OSError."""
    with path.open("rb") as file:
        return compression_of(file.read(HEADER_BYTES))


def _is_zlib_header(head: bytes) -> bool:
    """Whether this is deflate with a 32 kB window, no dictionary and correct check bits (RFC 1950, 2.2)."""
    return len(head) > 1 and head[0] == 0x78 and head[1] & 0x20 == 0 and int.from_bytes(head[:2], "big") % 31 == 0  # noqa: PLR2004
