"""Check one payload against the features of a pipeline: read its values, then check them feature by feature.

Values are read in one of three ways, the cheapest first: in place, by the layout of an example that was parsed before
(`layout`); by walking through a large payload (`layout`); by the protobuf runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shard_validation.examples.layout import MIN_WALKED_BYTES, Layouts, Payload, Values, compile_walk
from shard_validation.examples.message import example_class
from shard_validation.examples.size import MIN_SCANNED_BYTES, parsed_size_fault
from shard_validation.features import ValuesCheck, compile_values_check, missing
from shard_validation.reasons import Fault, ReasonCode
from shard_validation.requirements import DataRequirements
from shard_validation.statistics import ShardStatistics
from shared.manifest import FeatureSpec

PayloadCheck = Callable[[Payload, int], list[Fault] | None]
"""Takes a payload and the record's index; returns its faults, or None."""
FeatureCheck = Callable[[Any, int], Fault | None]
"""Takes a protobuf ``Feature`` and the record's index."""

_LIST_NAMES = {"int64": "int64_list", "float": "float_list", "bytes": "bytes_list"}


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
            fault = check_feature(features[name], index) if name in features else _absent(spec)
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


def _absent(spec: FeatureSpec) -> Fault | None:
    return missing(spec) if spec.required else None


def _not_protobuf(error: Exception) -> Fault:
    return Fault(
        code=ReasonCode.EXAMPLE_NOT_PROTOBUF,
        expected="a serialized tf.train.Example",
        seen=str(error) or "other bytes",
    )


def _unknown(example: Any, size_bytes: int, max_bytes: int) -> Fault | None:
    """Compare the size with that of the example's own fields: finds what the parser kept as unknown or dropped."""
    example.DiscardUnknownFields()
    unknown = size_bytes - example.ByteSize()
    if unknown <= max_bytes:
        return None
    return Fault(
        code=ReasonCode.EXAMPLE_UNKNOWN_FIELDS,
        expected=f"at most {max_bytes} bytes beside the example's own fields (limits.max_unknown_bytes)",
        seen=f"{unknown} of {size_bytes} bytes",
    )
