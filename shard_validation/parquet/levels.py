"""Runs and bit-packed groups: how definition levels and dictionary indices are written.

Source: apache/parquet-format, Encodings.md, "Run Length Encoding / Bit-Packing Hybrid".
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, repeat

_MAX_VARINT_BYTES = 5


class LevelsError(ValueError):
    """The bytes end too early, or say what cannot be."""


def hybrid_values(content: memoryview, bit_width: int, count: int) -> Iterator[int]:
    """Yield ``count`` values, lazily: a run takes no memory, however long it claims to be. Raises LevelsError."""
    position = 0
    while count > 0:
        head, position = _varint(content, position)
        if head & 1:
            num_bytes = (head >> 1) * bit_width
            num_values = min(count, (head >> 1) * 8)
            packed = content[position : position + num_bytes]
            if len(packed) < num_bytes:
                raise LevelsError(f"{num_bytes} bytes of values should follow byte {position}, {len(packed)} do")
            yield from islice(_unpacked(packed, bit_width, num_values), num_values)
        else:
            num_bytes, num_values = (bit_width + 7) // 8, min(count, head >> 1)
            packed = content[position : position + num_bytes]
            if len(packed) < num_bytes:
                raise LevelsError(f"a run's value should follow byte {position}")
            value = int.from_bytes(packed, "little")
            if value >> bit_width:
                raise LevelsError(f"a run's value should have {bit_width} bits, was {value}, at byte {position}")
            yield from repeat(value, num_values)
        if not num_values:
            raise LevelsError(f"a run should have a length, at byte {position}")
        position += num_bytes
        count -= num_values


def _unpacked(packed: memoryview, bit_width: int, num_values: int) -> Iterator[int]:
    """Yield values of groups of eight."""
    if bit_width == 0:
        yield from repeat(0, num_values)
        return
    mask = (1 << bit_width) - 1
    for start in range(0, len(packed), bit_width):
        group = int.from_bytes(packed[start : start + bit_width], "little")
        for _ in range(8):
            yield group & mask
            group >>= bit_width


def _varint(content: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for i, byte in enumerate(content[position : position + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:  # noqa: PLR2004 - the continuation bit
            return value, position + i + 1
    raise LevelsError(f"a run's head should follow byte {position}")
