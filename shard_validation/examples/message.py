"""``tf.train.Example`` as a protobuf message, described here and not imported from TensorFlow.

The description lives in a pool and a package of its own: TensorFlow in the same process registers
``tensorflow.Example`` in the default pool, and the two do not collide. protobuf is imported when it is first used.
Source of the layout: tensorflow/core/example/example.proto and feature.proto.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from numbers import Integral, Real
from typing import Any

_PACKAGE = "landfall.wire"

Value = bytes | str | int | float | Sequence[bytes] | Sequence[str] | Sequence[int] | Sequence[float]


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
