"""One feature of one example against what the pipeline states of it. Compiled once, called for every record."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from shard_validation.bytes_checks import BytesCheck, compile_bytes_check
from shard_validation.reason_codes import ReasonCode
from shard_validation.reasons import Fault
from shard_validation.requirements import DataRequirements
from shard_validation.statistics import MAX_DISTINCT, FeatureStatistics
from shared.example_schema import FeatureSpec

FeatureCheck = Callable[[Any, int], Fault | None]
"""Takes the protobuf feature and the record's index."""
ValuesCheck = Callable[[Sequence[Any], int], Fault | None]
"""Takes the values and the record's index: what Parquet rows and examples have in common."""

_LIST_NAMES = {"int64": "int64_list", "float": "float_list", "bytes": "bytes_list"}


def compile_feature_check(spec: FeatureSpec, check_values: ValuesCheck) -> FeatureCheck:
    """Return a check of a protobuf ``Feature``: kind, then values."""
    list_name = _LIST_NAMES[spec.kind]
    may_be_empty = None in spec.shape

    def check(feature: Any, index: int) -> Fault | None:
        values = getattr(feature, list_name).value
        if not values and not (may_be_empty and feature.WhichOneof("kind") == list_name):
            return _missing_or_wrong(spec, feature, list_name)
        return check_values(values, index)

    return check


def compile_values_check(
    spec: FeatureSpec, requirements: DataRequirements, statistics: FeatureStatistics
) -> ValuesCheck:
    """Return a check of one record's values of one feature: shape, range, allowed values, bytes."""
    if spec.kind == "bytes":
        return _compile_bytes(spec, compile_bytes_check(spec, requirements, statistics))
    if not spec.shape:
        return _compile_scalar(spec, statistics)
    return _compile_numbers(spec, statistics)


def _missing_or_wrong(spec: FeatureSpec, feature: Any, list_name: str) -> Fault | None:
    kind = feature.WhichOneof("kind")
    if kind is not None and kind != list_name:
        return Fault(
            code=ReasonCode.FEATURE_WRONG_KIND, feature=spec.name, expected=spec.kind, seen=kind.removesuffix("_list")
        )
    return missing(spec) if spec.required else None


def missing(spec: FeatureSpec) -> Fault:
    """Return the fault of a required feature without a value."""
    return Fault(
        code=ReasonCode.FEATURE_MISSING, feature=spec.name, expected=f"a value of kind {spec.kind}", seen="none"
    )


def wrong_shape(spec: FeatureSpec, seen: str) -> Fault:
    """Return the fault of another shape than the stated one."""
    expected = " x ".join("any" if d is None else str(d) for d in spec.shape) or "one value"
    return Fault(code=ReasonCode.FEATURE_WRONG_SHAPE, feature=spec.name, expected=expected, seen=seen)


def fits_shape(num_values: int, shape: tuple[int | None, ...]) -> bool:
    """Tell whether a number of values fills a shape whose open sizes may be anything."""
    known = math.prod(d for d in shape if d is not None)
    if None not in shape:
        return num_values == known
    return num_values == 0 or (known > 0 and num_values % known == 0)


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
        if not fits_shape(len(values), shape):
            return wrong_shape(spec, f"{len(values)} values")
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


def _compile_bytes(spec: FeatureSpec, check_bytes: BytesCheck) -> ValuesCheck:
    one_value = spec.encoding in {"jpeg", "png", "image", "raw"} or not spec.shape

    def check(values: Sequence[Any], index: int) -> Fault | None:
        if len(values) == 1:
            return check_bytes(values[0], index)
        if one_value or not fits_shape(len(values), spec.shape):
            return Fault(
                code=ReasonCode.FEATURE_WRONG_SHAPE,
                feature=spec.name,
                expected="one value" if one_value else f"values of shape {spec.shape}",
                seen=f"{len(values)} values",
            )
        return next((fault for v in values if (fault := check_bytes(v, index))), None)

    return check


def _place(values: Sequence[Any], position: int) -> str:
    return str(values[position]) + (f" at position {position}" if len(values) > 1 else "")


def _not_finite(spec: FeatureSpec, values: Sequence[float]) -> Fault | None:
    position = next((i for i, v in enumerate(values) if not math.isfinite(v)), None)
    if position is None:
        return None
    return Fault(
        code=ReasonCode.VALUE_NOT_FINITE, feature=spec.name, expected="finite", seen=_place(values, position)
    )


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
