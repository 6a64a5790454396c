"""How Parquet encodes levels, dictionary indices and byte arrays inside a page.

Source: apache/parquet-format, Encodings.md, "Run Length Encoding / Bit-Packing Hybrid" and "Plain".
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, repeat

PLAIN, PLAIN_DICTIONARY, RLE, BIT_PACKED, RLE_DICTIONARY = 0, 2, 3, 4, 8
LENGTH_BYTES = 4
"""Length of the number that precedes a plain byte array, and the levels of a page of version 1."""
_MAX_VARINT_BYTES = 5


class PageDataError(ValueError):
    """The bytes of a page end too early, or contradict themselves or the page's header."""


def hybrid_values(content: memoryview, bit_width: int, count: int) -> Iterator[int]:
    """Yield ``count`` values lazily: a run takes no memory, whatever length it claims. Raises PageDataError."""
    position = 0
    while count > 0:
        head, position = _varint(content, position)
        if head & 1:
            num_bytes = (head >> 1) * bit_width
            num_values = min(count, (head >> 1) * 8)
            packed = content[position : position + num_bytes]
            if len(packed) < num_bytes:
                raise PageDataError(f"{len(packed)} of {num_bytes} bytes of values after byte {position}")
            yield from islice(_unpacked(packed, bit_width, num_values), num_values)
        else:
            num_bytes, num_values = (bit_width + 7) // 8, min(count, head >> 1)
            packed = content[position : position + num_bytes]
            if len(packed) < num_bytes:
                raise PageDataError(f"a run without a value at byte {position}")
            value = int.from_bytes(packed, "little")
            if value >> bit_width:
                raise PageDataError(f"a run's value of {value} with more than {bit_width} bits at byte {position}")
            yield from repeat(value, num_values)
        if not num_values:
            raise PageDataError(f"a run of length 0 at byte {position}")
        position += num_bytes
        count -= num_values


def _unpacked(packed: memoryview, bit_width: int, num_values: int) -> Iterator[int]:
    """Yield the values of bit-packed groups of eight."""
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
    raise PageDataError(f"no head of a run at byte {position}")


def checked_levels(levels: Iterator[int], highest: int) -> Iterator[int]:
    """Yield definition levels. Raises PageDataError for a level that the column cannot have."""
    for level in levels:
        if level > highest:
            raise PageDataError(f"a definition level of {level}, above the column's {highest}")
        yield level


@dataclass(frozen=True)
class PlainValues:
    """Consecutive byte arrays, with the position of each: far smaller than as many objects."""

    content: memoryview
    places: array[int]
    """Start and stop of each value in turn."""

    def __len__(self) -> int:
        return len(self.places) // 2

    def __getitem__(self, index: int) -> bytes:
        return bytes(self.content[self.places[2 * index] : self.places[2 * index + 1]])


def plain_values(content: memoryview, count: int) -> PlainValues:
    """Find the values of the PLAIN encoding, each preceded by its length in four bytes. Raises PageDataError."""
    if count * LENGTH_BYTES > len(content):
        raise PageDataError(f"{len(content)} bytes for {count} values")
    places = array("I")
    position = 0
    for i in range(count):
        start = position + LENGTH_BYTES
        position = start + int.from_bytes(content[position:start], "little")
        if position > len(content):
            raise PageDataError(f"value {i} that ends at byte {position} in a page of {len(content)} bytes")
        places.append(start)
        places.append(position)
    return PlainValues(content, places)
