"""Hand-made ``tf.train.Example`` bytes, so that tests depend neither on TensorFlow nor on our own reader."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

Value = bytes | int | float | Sequence[bytes] | Sequence[int] | Sequence[float]

_LENGTH_DELIMITED = 2


def example_bytes(features: Mapping[str, Value]) -> bytes:
    """Serialize an Example; the type of a feature follows from its values (bytes, int or float)."""
    entries = (_field(1, _field(1, name.encode()) + _field(2, _feature(value))) for name, value in features.items())
    return _field(1, b"".join(entries))


def _feature(value: Value) -> bytes:
    values: list[Any] = [value] if isinstance(value, bytes | int | float) else list(value)
    if values and isinstance(values[0], bytes):
        return _field(1, b"".join(_field(1, v) for v in values))
    if values and isinstance(values[0], float):
        return _field(2, _field(1, struct.pack(f"<{len(values)}f", *values)))
    return _field(3, _field(1, b"".join(map(_varint, values))))


def _field(number: int, payload: bytes) -> bytes:
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(len(payload)) + payload


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])
