"""``tf.train.Example`` as a protobuf message: its class, its encoding, and the memory that it takes when parsed.

The message is described here instead of imported from TensorFlow. It is in its own pool and package, so that it does
not collide with ``tensorflow.Example`` if TensorFlow is in the same process. protobuf is imported on first use.
Sources: tensorflow/core/example/example.proto and feature.proto; protobuf.dev, "Encoding".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from numbers import Integral, Real
from typing import Any

from shard_validation.reasons import Fault, ReasonCode
from shard_validation.tfrecord.layout import Payload

_PACKAGE = "landfall.wire"

Value = bytes | str | int | float | Sequence[bytes] | Sequence[str] | Sequence[int] | Sequence[float]

MIN_SCANNED_BYTES = 512 << 10
"""Smaller payloads are not scanned for their memory."""
MAX_STEPS = 250_000
"""Maximum number of fields that are scanned; an example with more is rejected."""

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


def encode_example(features: Mapping[str, Value]) -> bytes:
    """Return a serialized ``tf.train.Example``, the same bytes for the same features.

    The kind follows from the values: bytes (text is encoded as UTF-8), int, or float where one of them is a float.
    Raises TypeError for anything else, and ValueError for an empty list, whose kind cannot be known.
    """
    example = example_class()()
    for name, value in features.items():
        values = list(value) if isinstance(value, Sequence) and not isinstance(value, (bytes, str)) else [value]
        _fill(example.features.feature[name], name, values)
    return bytes(example.SerializeToString(deterministic=True))


def _fill(feature: Any, name: str, values: list[Any]) -> None:
    if not values:
        raise ValueError(f"feature {name}: an empty list has no kind; leave the feature out")
    if all(isinstance(v, (bytes, str)) for v in values):
        feature.bytes_list.value.extend(v.encode() if isinstance(v, str) else v for v in values)
    elif all(isinstance(v, Integral) for v in values):
        feature.int64_list.value.extend(int(v) for v in values)
    elif all(isinstance(v, Real) for v in values):
        feature.float_list.value.extend(float(v) for v in values)
    else:
        raise TypeError(f"feature {name}: values of type {type(values[0]).__name__} are not bytes, int or float")


@cache
def example_class() -> Any:
    """Return the message class, wire-compatible with ``tf.train.Example``."""
    from google.protobuf import descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    pool.Add(_describe())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Example"))


def _describe() -> Any:
    """Return a FileDescriptorProto of example.proto and feature.proto."""
    from google.protobuf import descriptor_pb2

    field = descriptor_pb2.FieldDescriptorProto
    lists = (
        ("bytes_list", "BytesList", field.TYPE_BYTES),
        ("float_list", "FloatList", field.TYPE_FLOAT),
        ("int64_list", "Int64List", field.TYPE_INT64),
    )

    def message(name: str, label: Any = field.LABEL_OPTIONAL) -> dict[str, Any]:
        return {"type": field.TYPE_MESSAGE, "label": label, "type_name": f".{_PACKAGE}.{name}"}

    file = descriptor_pb2.FileDescriptorProto(name="landfall/wire.proto", package=_PACKAGE, syntax="proto3")
    feature = descriptor_pb2.DescriptorProto(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, (name, list_message, value_type) in enumerate(lists, start=1):
        values = file.message_type.add(name=list_message).field
        values.add(name="value", number=1, type=value_type, label=field.LABEL_REPEATED)
        feature.field.add(name=name, number=number, oneof_index=0, **message(list_message))
    file.message_type.append(feature)
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, **message("Feature"))
    features.field.add(name="feature", number=1, **message("Features.FeatureEntry", field.LABEL_REPEATED))
    file.message_type.add(name="Example").field.add(name="features", number=1, **message("Features"))
    return file


class _MalformedError(ValueError):
    """The bytes are not protobuf; the parser reports that."""


def parsed_size_fault(payload: Payload, max_bytes: int) -> Fault | None:
    """Return the fault of an example that would take more than ``max_bytes`` of memory once parsed, or None.

    Many tiny values take up to 30 times their encoded size: 16 MB of one-byte integers or of empty features would
    fill half a gigabyte.
    """
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
