"""One feature of one record against its specification: TFRecord examples and Parquet rows use the same checks.

Checks are compiled once per shard and called for every record.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

from shard_validation.images import Bytes, compile_image_check
from shard_validation.reasons import Fault, ReasonCode
from shard_validation.requirements import DataRequirements
from shard_validation.statistics import MAX_DISTINCT, FeatureStatistics
from shared.manifest import FeatureSpec

ValuesCheck = Callable[[Sequence[Any], int], Fault | None]
"""Takes the values of one record and the record's index."""
BytesCheck = Callable[[Bytes, int], Fault | None]
"""Takes one value, which may be a view of the payload, and the record's index."""

_ItemFormat = Literal["B", "i", "q", "f"]
_ITEM_FORMATS: dict[str, _ItemFormat] = {"uint8": "B", "int32": "i", "int64": "q", "float32": "f"}
MAX_LABEL_BYTES = 64
"""Longer texts are not counted in the histogram."""


def compile_values_check(
    spec: FeatureSpec, requirements: DataRequirements, statistics: FeatureStatistics
) -> ValuesCheck:
    """Return a check of one record's values of one feature: shape, range, allowed values, bytes."""
    if spec.kind == "bytes":
        return _compile_bytes(spec, _compile_bytes_value(spec, requirements, statistics))
    if not spec.shape:
        return _compile_scalar(spec, statistics)
    return _compile_numbers(spec, statistics)


def missing(spec: FeatureSpec) -> Fault:
    """Return the fault of a required feature without a value."""
    return Fault(
        code=ReasonCode.FEATURE_MISSING, feature=spec.name, expected=f"a value of kind {spec.kind}", seen="none"
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


def _compile_numbers(spec: FeatureSpec, statistics: FeatureStatistics) -> ValuesCheck:
    shape, minimum, maximum = spec.shape, spec.minimum, spec.maximum
    allowed = frozenset(spec.allowed)
    is_float = spec.kind == "float"

    def check(values: Sequence[Any], _: int) -> Fault | None:
        if not _fits_shape(len(values), shape):
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


def _fits_shape(num_values: int, shape: tuple[int | None, ...]) -> bool:
    """Whether so many values fill a shape, in which None stands for any size."""
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
    low = -math.inf if spec.minimum is None else spec.minimum
    high = math.inf if spec.maximum is None else spec.maximum
    position = next(i for i, v in enumerate(values) if not low <= v <= high)
    return Fault(
        code=ReasonCode.VALUE_OUT_OF_RANGE,
        feature=spec.name,
        expected=f"{low:g} to {high:g}",
        seen=_place(values, position),
    )


def _not_allowed(spec: FeatureSpec, values: Sequence[Any]) -> Fault:
    position = next(i for i, v in enumerate(values) if v not in spec.allowed)
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
        if one_value or not _fits_shape(len(values), spec.shape):
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
    item_format = _ITEM_FORMATS[spec.dtype or "uint8"]
    item_bytes = struct.calcsize(item_format)
    known = math.prod(d for d in spec.shape if d is not None) * item_bytes
    is_open = None in spec.shape or not spec.shape
    has_range = spec.minimum is not None or spec.maximum is not None
    checks_items = has_range or item_format == "f"
    last_sound_size = -1

    def check(content: Bytes, _: int) -> Fault | None:
        nonlocal last_sound_size
        size = len(content)
        if size == last_sound_size and not checks_items:
            statistics.num_present += 1
            return None
        if size != known and not (is_open and known and size % known == 0):
            return Fault(
                code=ReasonCode.FEATURE_WRONG_SHAPE,
                feature=spec.name,
                expected=f"{'a multiple of ' if is_open else ''}{known} bytes ({spec.dtype} {list(spec.shape)})",
                seen=f"{size} bytes",
            )
        if content and checks_items and (fault := _raw_fault(spec, content, item_format)):
            return fault
        statistics.num_present += 1
        statistics.widen(size, size)
        last_sound_size = size
        return None

    return check


def _raw_fault(spec: FeatureSpec, content: Bytes, item_format: _ItemFormat) -> Fault | None:
    values = memoryview(content).cast(item_format)
    if item_format == "f" and not math.isfinite(sum(values)) and (fault := _not_finite(spec, values)):
        return fault
    low = -math.inf if spec.minimum is None else spec.minimum
    high = math.inf if spec.maximum is None else spec.maximum
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
