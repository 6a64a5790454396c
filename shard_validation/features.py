"""Check records against the features of a pipeline: a whole example, or the values of one feature.

Checks are compiled once per shard and called for every record. TFRecord examples and Parquet rows use the same checks
of values. The values of an example are read in one of three ways, the cheapest first: in place, using the layout of
an example that was parsed before; by walking through a large payload (both in `tfrecord.layout`); by the protobuf
runtime.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal

from shard_validation.images import Bytes, compile_image_check
from shard_validation.reasons import Fault, ReasonCode
from shard_validation.requirements import DataRequirements
from shard_validation.tfrecord.layout import MIN_WALKED_BYTES, Layouts, Payload, Values, compile_walk
from shard_validation.tfrecord.message import MIN_SCANNED_BYTES, example_class, parsed_size_fault
from shard_validation.validate import MAX_DISTINCT, FeatureStatistics, ShardStatistics
from shared.manifest import FeatureSpec

PayloadCheck = Callable[[Payload, int], list[Fault] | None]
"""Takes a payload and the record's index; returns its faults, or None."""
FeatureCheck = Callable[[Any, int], Fault | None]
"""Takes a protobuf ``Feature`` and the record's index."""
ValuesCheck = Callable[[Sequence[Any], int], Fault | None]
"""Takes the values of one record and the record's index."""
BytesCheck = Callable[[Bytes, int], Fault | None]
"""Takes one value, which may be a view of the payload, and the record's index."""

_ItemFormat = Literal["B", "i", "q", "f"]
ITEM_FORMATS: dict[str, _ItemFormat] = {"uint8": "B", "int32": "i", "int64": "q", "float32": "f"}
_LIST_NAMES = {"int64": "int64_list", "float": "float_list", "bytes": "bytes_list"}
MAX_LABEL_BYTES = 64
"""Longer texts are not counted in the histogram."""
MAX_NAMED = 10
MAX_NAME_CHARS = 60
"""Bounds of the list in a message about a missing feature."""


def compile_payload_check(requirements: DataRequirements, statistics: ShardStatistics) -> PayloadCheck:
    """Return a check of a whole example against every feature of the pipeline."""
    specs, limits = requirements.features, requirements.limits
    check_values = [compile_values_check(spec, requirements, statistics.feature(spec.name)) for spec in specs]
    layouts = Layouts(specs)
    readers, walk = layouts.readers, compile_walk(specs)
    parse_and_check = _compile_parsing_check(requirements, check_values)

    def check(payload: Payload, index: int) -> list[Fault] | None:
        size = len(payload)
        if size > MIN_SCANNED_BYTES and (fault := parsed_size_fault(payload, limits.max_parsed_bytes)):
            return [fault]
        read = readers.get(size)
        values = read(payload) if read is not None else None
        if values is not None:
            return _check_all(check_values, values, index)
        if size >= MIN_WALKED_BYTES and (values := walk(payload)) is not None:
            faults = _check_all(check_values, values, index)
        else:
            faults = parse_and_check(payload, index)
        if faults is None:
            layouts.learn(payload)
        return faults

    return check


def _check_all(checks: list[ValuesCheck], values: Sequence[Values], index: int) -> list[Fault] | None:
    faults: list[Fault] | None = None
    for check, values_of_one in zip(checks, values, strict=False):
        if values_of_one is not None and (fault := check(values_of_one, index)) is not None:
            faults = [*(faults or ()), fault]
    return faults


def _compile_parsing_check(requirements: DataRequirements, check_values: list[ValuesCheck]) -> PayloadCheck:
    """Return a check that uses the protobuf runtime, for payloads of any layout."""
    from google.protobuf.message import DecodeError

    checks = [
        (spec.name, _compile_feature_check(spec, check), spec)
        for spec, check in zip(requirements.features, check_values, strict=True)
    ]
    max_unknown_bytes = requirements.limits.max_unknown_bytes
    parse = example_class().FromString

    def check(payload: Payload, index: int) -> list[Fault] | None:
        try:
            example = parse(payload)
        except DecodeError as error:
            return [_not_protobuf(error)]
        features = example.features.feature
        faults: list[Fault] | None = None
        for name, check_feature, spec in checks:
            fault = check_feature(features[name], index) if name in features else _absent(spec, features)
            if fault is not None:
                faults = [*(faults or ()), fault]
        size = len(payload)
        if size > max_unknown_bytes and (fault := _unknown(example, size, max_unknown_bytes)):
            faults = [*(faults or ()), fault]
        return faults

    return check


def _compile_feature_check(spec: FeatureSpec, check_values: ValuesCheck) -> FeatureCheck:
    list_name = _LIST_NAMES[spec.kind]
    may_be_empty = None in spec.shape

    def check(feature: Any, index: int) -> Fault | None:
        values = getattr(feature, list_name).value
        if not values and not (may_be_empty and feature.WhichOneof("kind") == list_name):
            return _missing_or_wrong(spec, feature, list_name)
        return check_values(values, index)

    return check


def _missing_or_wrong(spec: FeatureSpec, feature: Any, list_name: str) -> Fault | None:
    kind = feature.WhichOneof("kind")
    if kind is not None and kind != list_name:
        return Fault(
            code=ReasonCode.FEATURE_WRONG_KIND, feature=spec.name, expected=spec.kind, seen=kind.removesuffix("_list")
        )
    return _absent(spec)


def _absent(spec: FeatureSpec, present: Iterable[str] = ()) -> Fault | None:
    return missing(spec, present) if spec.required else None


def _not_protobuf(error: Exception) -> Fault:
    return Fault(
        code=ReasonCode.EXAMPLE_NOT_PROTOBUF,
        expected="a serialized tf.train.Example",
        seen=str(error) or "other bytes",
    )


def _unknown(example: Any, size_bytes: int, max_bytes: int) -> Fault | None:
    """Compare the size with that of the example's own fields, to find fields that the parser does not know."""
    example.DiscardUnknownFields()
    unknown = size_bytes - example.ByteSize()
    if unknown <= max_bytes:
        return None
    return Fault(
        code=ReasonCode.EXAMPLE_UNKNOWN_FIELDS,
        expected=f"at most {max_bytes} bytes besides the example's own fields (limits.max_unknown_bytes)",
        seen=f"{unknown} of {size_bytes} bytes",
    )


def compile_values_check(
    spec: FeatureSpec, requirements: DataRequirements, statistics: FeatureStatistics
) -> ValuesCheck:
    """Return a check of one record's values of one feature: shape, range, allowed values, bytes."""
    if spec.kind == "bytes":
        return _compile_bytes(spec, _compile_bytes_value(spec, requirements, statistics))
    if not spec.shape:
        return _compile_scalar(spec, statistics)
    return _compile_numbers(spec, statistics)


def missing(spec: FeatureSpec, present: Iterable[str] = ()) -> Fault:
    """Return the fault of a required feature without a value; ``present`` are the names that the example has."""
    names = sorted(present)
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    listed = ", ".join(name[:MAX_NAME_CHARS] for name in names[:MAX_NAMED])
    return Fault(
        code=ReasonCode.FEATURE_MISSING,
        feature=spec.name,
        expected=f"a value of kind {spec.kind}",
        seen=f"none, but {listed}{more}" if names else "none",
    )


def _compile_scalar(spec: FeatureSpec, statistics: FeatureStatistics) -> ValuesCheck:
    histogram = statistics.histogram
    check_numbers = _compile_numbers(spec, statistics)
    is_integer = spec.kind == "int64"
    known: dict[Any, str] = {}

    def check(values: Sequence[Any], index: int) -> Fault | None:
        if is_integer and len(values) == 1 and (key := known.get(values[0])) is not None:
            histogram[key] += 1
            statistics.num_present += 1
            return None
        fault = check_numbers(values, index)
        if fault is None and is_integer:
            key = str(values[0])
            statistics.count(key)
            if len(known) < MAX_DISTINCT and key in histogram:
                known[values[0]] = key
        return fault

    return check


def as_stored(spec: FeatureSpec) -> FeatureSpec:
    """Return a feature whose limits also admit the float32 nearest to each, as which shards store a value of 0.1."""
    if spec.kind != "float" and spec.dtype != "float32":
        return spec
    return replace(
        spec,
        minimum=None if spec.minimum is None else min(spec.minimum, _float32(spec.minimum)),
        maximum=None if spec.maximum is None else max(spec.maximum, _float32(spec.maximum)),
        allowed=(*spec.allowed, *(_float32(value) for value in spec.allowed if not isinstance(value, str))),
    )


def _range(spec: FeatureSpec) -> tuple[float, float]:
    """Return the smallest and the largest value that a stored number may have."""
    stored = as_stored(spec)
    low = -math.inf if stored.minimum is None else stored.minimum
    return low, math.inf if stored.maximum is None else stored.maximum


def _float32(number: float) -> float:
    """Return the nearest float32; a number beyond their range is returned as it is."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        return number


def _compile_numbers(spec: FeatureSpec, statistics: FeatureStatistics) -> ValuesCheck:
    stored = as_stored(spec)
    shape, minimum, maximum = spec.shape, stored.minimum, stored.maximum
    allowed = frozenset(stored.allowed)
    is_float = spec.kind == "float"

    def check(values: Sequence[Any], _: int) -> Fault | None:
        if not fits_shape(len(values), shape):
            return _wrong_shape(spec, f"{len(values)} values")
        if not values:
            return None
        if is_float and not math.isfinite(sum(values)) and (fault := _not_finite(spec, values)):
            return fault
        lowest, highest = min(values), max(values)
        if (minimum is not None and lowest < minimum) or (maximum is not None and highest > maximum):
            return _out_of_range(spec, values)
        if allowed and not allowed.issuperset(values):
            return _not_allowed(spec, values)
        statistics.num_present += 1
        statistics.widen(lowest, highest)
        return None

    return check


def fits_shape(num_values: int, shape: tuple[int | None, ...]) -> bool:
    """Whether this number of values fills a shape, in which None stands for any size."""
    known = math.prod(d for d in shape if d is not None)
    if None not in shape:
        return num_values == known
    return num_values == 0 or (known > 0 and num_values % known == 0)


def _wrong_shape(spec: FeatureSpec, seen: str) -> Fault:
    expected = " x ".join("any" if d is None else str(d) for d in spec.shape) or "one value"
    return Fault(code=ReasonCode.FEATURE_WRONG_SHAPE, feature=spec.name, expected=expected, seen=seen)


def _place(values: Sequence[Any], position: int) -> str:
    return str(values[position]) + (f" at position {position}" if len(values) > 1 else "")


def _not_finite(spec: FeatureSpec, values: Sequence[float]) -> Fault | None:
    position = next((i for i, v in enumerate(values) if not math.isfinite(v)), None)
    if position is None:
        return None
    seen = _place(values, position)
    return Fault(code=ReasonCode.VALUE_NOT_FINITE, feature=spec.name, expected="finite values", seen=seen)


def _out_of_range(spec: FeatureSpec, values: Sequence[float]) -> Fault:
    low, high = _range(spec)
    position = next(i for i, v in enumerate(values) if not low <= v <= high)
    smallest = -math.inf if spec.minimum is None else spec.minimum
    largest = math.inf if spec.maximum is None else spec.maximum
    return Fault(
        code=ReasonCode.VALUE_OUT_OF_RANGE,
        feature=spec.name,
        expected=f"{_number(smallest)} to {_number(largest)}",
        seen=_place(values, position),
    )


def _number(bound: float) -> str:
    """Return a bound with enough digits to differ from a value beyond it."""
    return str(bound) if isinstance(bound, int) else f"{bound:.15g}"


def _not_allowed(spec: FeatureSpec, values: Sequence[Any]) -> Fault:
    allowed = as_stored(spec).allowed
    position = next(i for i, v in enumerate(values) if v not in allowed)
    return Fault(
        code=ReasonCode.VALUE_NOT_ALLOWED,
        feature=spec.name,
        expected=f"one of {list(spec.allowed)}",
        seen=_place(values, position),
    )


def _compile_bytes(spec: FeatureSpec, check_value: BytesCheck) -> ValuesCheck:
    one_value = spec.encoding in {"jpeg", "png", "image", "raw"} or not spec.shape

    def check(values: Sequence[Any], index: int) -> Fault | None:
        if len(values) == 1:
            return check_value(values[0], index)
        if one_value or not fits_shape(len(values), spec.shape):
            return Fault(
                code=ReasonCode.FEATURE_WRONG_SHAPE,
                feature=spec.name,
                expected="one value" if one_value else f"values of shape {spec.shape}",
                seen=f"{len(values)} values",
            )
        return next((fault for v in values if (fault := check_value(v, index))), None)

    return check


def _compile_bytes_value(
    spec: FeatureSpec, requirements: DataRequirements, statistics: FeatureStatistics
) -> BytesCheck:
    """Return a check of one value, by the encoding that the pipeline states."""
    if spec.encoding in {"jpeg", "png", "image"}:
        return _compile_image(spec, requirements, statistics)
    if spec.encoding == "raw":
        return _compile_raw(spec, statistics)
    return _compile_plain(spec, statistics)


def _compile_image(spec: FeatureSpec, requirements: DataRequirements, statistics: FeatureStatistics) -> BytesCheck:
    check_image = compile_image_check(spec, requirements)

    def check(content: Bytes, index: int) -> Fault | None:
        header = check_image(content, index)
        if isinstance(header, Fault):
            return replace(header, feature=spec.name)
        statistics.num_present += 1
        statistics.count(f"{header.width}x{header.height}x{header.channels}")
        statistics.widen(len(content), len(content))
        return None

    return check


def _compile_raw(spec: FeatureSpec, statistics: FeatureStatistics) -> BytesCheck:
    item_format, bounds = ITEM_FORMATS[spec.dtype or "uint8"], _range(spec)
    size_fits, expected = raw_sizes(spec)
    has_range = spec.minimum is not None or spec.maximum is not None
    checks_items = has_range or item_format == "f"
    last_sound_size = -1

    def check(content: Bytes, _: int) -> Fault | None:
        nonlocal last_sound_size
        size = len(content)
        if size == last_sound_size and not checks_items:
            statistics.num_present += 1
            return None
        if not size_fits(size):
            code = ReasonCode.FEATURE_WRONG_SHAPE
            return Fault(code=code, feature=spec.name, expected=expected, seen=f"{size} bytes")
        if content and checks_items and (fault := _raw_fault(spec, content, item_format, bounds)):
            return fault
        statistics.num_present += 1
        statistics.widen(size, size)
        last_sound_size = size
        return None

    return check


def raw_sizes(spec: FeatureSpec) -> tuple[Callable[[int], bool], str]:
    """Return a check whether a number of bytes is a tensor of the feature's type and shape, and its description."""
    known = math.prod(d for d in spec.shape if d is not None) * struct.calcsize(ITEM_FORMATS[spec.dtype or "uint8"])
    words = f"{known} bytes ({spec.dtype} {list(spec.shape)})"
    if spec.shape and None not in spec.shape:
        return known.__eq__, words
    return lambda size: size == known or (known > 0 and size % known == 0), f"a multiple of {words}"


def _raw_fault(
    spec: FeatureSpec, content: Bytes, item_format: _ItemFormat, bounds: tuple[float, float]
) -> Fault | None:
    values = memoryview(content).cast(item_format)
    if item_format == "f" and not math.isfinite(sum(values)) and (fault := _not_finite(spec, values)):
        return fault
    low, high = bounds
    if min(values) < low or max(values) > high:
        return _out_of_range(spec, values)
    return None


def _compile_plain(spec: FeatureSpec, statistics: FeatureStatistics) -> BytesCheck:
    allowed = frozenset(str(a).encode() for a in spec.allowed)
    is_text = spec.encoding == "text" or bool(allowed)

    def check(content: Bytes, _: int) -> Fault | None:
        content = bytes(content) if is_text else content
        if allowed and content not in allowed:
            seen = ascii(content[:MAX_LABEL_BYTES])
            return Fault(
                code=ReasonCode.VALUE_NOT_ALLOWED,
                feature=spec.name,
                expected=f"one of {list(spec.allowed)}",
                seen=seen,
            )
        if is_text and (fault := _check_text(spec, bytes(content), statistics)):
            return fault
        statistics.num_present += 1
        statistics.widen(len(content), len(content))
        return None

    return check


def _check_text(spec: FeatureSpec, content: bytes, statistics: FeatureStatistics) -> Fault | None:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        seen = f"byte {content[error.start]:02x} at position {error.start}"
        return Fault(code=ReasonCode.TEXT_NOT_UTF8, feature=spec.name, expected="UTF-8", seen=seen)
    if len(content) <= MAX_LABEL_BYTES:
        statistics.count(text)
    return None
