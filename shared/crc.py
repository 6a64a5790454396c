"""CRC32C of files, as in manifests, and of concatenated contents with known CRCs."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import BinaryIO

from crc32c import crc32c

_CHUNK_BYTES = 256 << 10
"""Block size that fits into a core's cache, so that each byte is read from memory only once."""
_UINT32 = 0xFFFFFFFF

_DIGIT_BITS = 4
_BLOCK_BITS = 12
_ZEROS = memoryview(bytes(1 << _BLOCK_BITS))

_Tables = tuple[tuple[int, ...], ...]


def crc32c_of_file(path: Path, copy: BinaryIO | None = None) -> str:
    """Return the CRC32C (Castagnoli) of a file's content as eight lower-case hexadecimal digits.

    ``copy`` receives the content that was read.
    """
    crc, chunk = 0, memoryview(bytearray(_CHUNK_BYTES))
    with path.open("rb", buffering=0) as file:
        while num_bytes := file.readinto(chunk):
            crc = crc32c(chunk[:num_bytes], crc)
            if copy is not None:
                copy.write(chunk[:num_bytes])
    return f"{crc:08x}"


def combined_crc32c(first: int, second: int, second_bytes: int) -> int:
    """Return the CRC32C of two concatenated contents from the CRC32C of each.

    Takes about a microsecond for any length. Source of the method: zlib's crc32_combine.
    """
    return _carried_over_zeros(first, second_bytes) ^ second


def _carried_over_zeros(crc: int, num_bytes: int) -> int:
    """Return the CRC register after ``num_bytes`` zero bytes: the effect of the second content's length on it.

    Bytes beyond whole blocks are processed one by one; each hexadecimal digit of the number of blocks is one step.
    """
    crc = crc32c(_ZEROS[: num_bytes & (len(_ZEROS) - 1)], crc ^ _UINT32) ^ _UINT32
    num_blocks, bits = num_bytes >> _BLOCK_BITS, _BLOCK_BITS
    while num_blocks:
        if digit := num_blocks & ((1 << _DIGIT_BITS) - 1):
            crc = _step(_tables(digit, bits), crc)
        num_blocks, bits = num_blocks >> _DIGIT_BITS, bits + _DIGIT_BITS
    return crc


def _step(tables: _Tables, crc: int) -> int:
    lowest, low, high, highest = tables
    return lowest[crc & 0xFF] ^ low[crc >> 8 & 0xFF] ^ high[crc >> 16 & 0xFF] ^ highest[crc >> 24]


@cache
def _tables(digit: int, bits: int) -> _Tables:
    """Return the result of ``digit << bits`` zero bytes for each value of each of the four bytes of a CRC.

    The step is linear over XOR, so that a CRC can be processed byte by byte.
    """
    return tuple(tuple(_long_step(byte << place, digit, bits) for byte in range(256)) for place in (0, 8, 16, 24))


def _long_step(crc: int, digit: int, bits: int) -> int:
    """Advance a CRC over ``digit << bits`` zero bytes, by known steps or single blocks."""
    if digit > 1:
        return _step(_tables(1, bits), _step(_tables(digit - 1, bits), crc))
    if bits > _BLOCK_BITS:
        last = (1 << _DIGIT_BITS) - 1
        return _step(_tables(1, bits - _DIGIT_BITS), _step(_tables(last, bits - _DIGIT_BITS), crc))
    return crc32c(_ZEROS, crc ^ _UINT32) ^ _UINT32
