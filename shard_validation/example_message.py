"""``tf.train.Example`` by the protobuf runtime, from a description of our own.

The message is described in a pool of its own, under a package of its own: TensorFlow in the same process
registers ``tensorflow.Example`` in the default pool, and neither notices the other.
Source of the layout: tensorflow/core/example/example.proto and feature.proto.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "landfall.wire"
_Field = descriptor_pb2.FieldDescriptorProto
_LISTS = (
    ("bytes_list", "BytesList", _Field.TYPE_BYTES),
    ("float_list", "FloatList", _Field.TYPE_FLOAT),
    ("int64_list", "Int64List", _Field.TYPE_INT64),
)

Value = bytes | str | int | float | Sequence[bytes] | Sequence[str] | Sequence[int] | Sequence[float]


def _describe() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="landfall/wire.proto", package=_PACKAGE, syntax="proto3")
    feature = descriptor_pb2.DescriptorProto(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, (field, message, value_type) in enumerate(_LISTS, start=1):
        values = file.message_type.add(name=message).field
        values.add(name="value", number=1, type=value_type, label=_Field.LABEL_REPEATED)
        feature.field.add(name=field, number=number, oneof_index=0, **_message(message))
    file.message_type.append(feature)
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=_Field.TYPE_STRING, label=_Field.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, **_message("Feature"))
    features.field.add(name="feature", number=1, **_message("Features.FeatureEntry", _Field.LABEL_REPEATED))
    file.message_type.add(name="Example").field.add(name="features", number=1, **_message("Features"))
    return file


def _message(name: str, label: Any = _Field.LABEL_OPTIONAL) -> dict[str, Any]:
    return {"type": _Field.TYPE_MESSAGE, "label": label, "type_name": f".{_PACKAGE}.{name}"}


_pool = descriptor_pool.DescriptorPool()
_pool.Add(_describe())
Example: Any = message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"{_PACKAGE}.Example"))
"""Wire-compatible with ``tf.train.Example``."""


def encode_example(features: Mapping[str, Value]) -> bytes:
    """Return a serialized ``tf.train.Example``, the same bytes for the same features.

    The kind follows from the values: bytes (text is encoded as UTF-8), int, or float as soon as one is a float.
    Raises TypeError for anything else, ValueError for an empty list, whose kind nobody could tell.
    """
    example = Example()
    for name, value in features.items():
        values = list(value) if isinstance(value, Sequence) and not isinstance(value, (bytes, str)) else [value]
        _fill(example.features.feature[name], name, values)
    return bytes(example.SerializeToString(deterministic=True))


def _fill(feature: Any, name: str, values: list[Any]) -> None:
    if not values:
        raise ValueError(f"feature {name}: there should be at least one value, there was none")
    if all(isinstance(v, (bytes, str)) for v in values):
        feature.bytes_list.value.extend(v.encode() if isinstance(v, str) else v for v in values)
    elif all(isinstance(v, Integral) for v in values):
        feature.int64_list.value.extend(int(v) for v in values)
    elif all(isinstance(v, Real) for v in values):
        feature.float_list.value.extend(float(v) for v in values)
    else:
        raise TypeError(f"feature {name}: values should be bytes, int or float, were {type(values[0]).__name__} …")
