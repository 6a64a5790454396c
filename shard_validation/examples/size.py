"""Estimate the memory of a parsed example from its bytes, before it is parsed.

Many tiny values take up to 30 times their encoded size: 16 MB of one-byte integers or of empty features would
fill half a gigabyte. Small payloads are not scanned.
Source of the encoding: protobuf.dev, "Encoding".
"""

from __future__ import annotations

from shard_validation.examples.layout import Payload
from shard_validation.reasons import Fault, ReasonCode

MIN_SCANNED_BYTES = 512 << 10
MAX_STEPS = 250_000
"""Fields that are scanned; an example with more is rejected."""

_VARINT, _FIXED64, _LENGTH, _GROUP, _GROUP_END, _FIXED32 = range(6)
_FIELD_BYTES = 32
"""Cost of one field or value besides its own bytes: a slot in an array, or a view and a length."""
_FEATURE_BYTES = 256
"""Cost of a slot in the map, a Feature and its list."""
_PACKED_FACTOR = 24
"""A one-byte integer becomes eight bytes in an array that grows by doubling."""
_MAX_VARINT_BYTES = 10

_EXAMPLE, _FEATURES, _ENTRY, _FEATURE, _BYTES, _FLOATS, _INTS, _OTHER = range(8)
_CHILD = {
    (_EXAMPLE, 1): _FEATURES,
    (_FEATURES, 1): _ENTRY,
    (_ENTRY, 2): _FEATURE,
    (_FEATURE, 1): _BYTES,
    (_FEATURE, 2): _FLOATS,
    (_FEATURE, 3): _INTS,
}


class _MalformedError(ValueError):
    """The bytes are not protobuf; the parser reports that."""


def parsed_size_fault(payload: Payload, max_bytes: int) -> Fault | None:
    """Return the fault of an example that would take more than ``max_bytes`` of memory, or None."""
    size = steps = 0
    regions = [(0, len(payload), _EXAMPLE)]
    while regions:
        position, end, level = regions.pop()
        while position < end:
            steps += 1
            try:
                position, cost, child = _step(payload, position, end, level)
            except _MalformedError:
                break
            size += cost
            if size > max_bytes or steps > MAX_STEPS:
                return _fault(size, steps, max_bytes)
            if child is not None:
                regions.append((position, end, level))
                position, end, level = child
    return None


def _step(payload: Payload, position: int, end: int, level: int) -> tuple[int, int, tuple[int, int, int] | None]:
    """Read one field; return where the next begins, its cost, and the range and level of the message in it."""
    tag, position = _varint(payload, position, end)
    wire_type, number = tag & 7, tag >> 3
    if wire_type != _LENGTH:
        return _skip(payload, position, end, wire_type), _FIELD_BYTES, None
    length, position = _varint(payload, position, end)
    stop = position + length
    if stop > end:
        raise _MalformedError
    child = _CHILD.get((level, number))
    if child is not None:
        return stop, _FEATURE_BYTES if child == _ENTRY else _FIELD_BYTES, (position, stop, child)
    return stop, _FIELD_BYTES + length * (_PACKED_FACTOR if level == _INTS else 1), None


def _skip(payload: Payload, position: int, end: int, wire_type: int) -> int:
    if wire_type == _VARINT:
        return _varint(payload, position, end)[1]
    if wire_type in {_GROUP, _GROUP_END}:
        return position
    if wire_type == _FIXED64:
        return position + 8
    if wire_type == _FIXED32:
        return position + 4
    raise _MalformedError


def _varint(payload: Payload, position: int, end: int) -> tuple[int, int]:
    value = 0
    for i in range(min(_MAX_VARINT_BYTES, end - position)):
        byte = payload[position + i]
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:  # noqa: PLR2004 - the continuation bit
            return value, position + i + 1
    raise _MalformedError


def _fault(size: int, steps: int, max_bytes: int) -> Fault:
    return Fault(
        code=ReasonCode.EXAMPLE_TOO_COMPLEX,
        expected=f"at most {max_bytes} bytes in memory (limits.max_parsed_bytes) and {MAX_STEPS} fields",
        seen=f"at least {size} bytes after {steps} fields",
    )
