"""One payload against the pipeline's features: its values read, then checked feature by feature.

The protobuf runtime parses; examples of a layout that it has parsed before are read where their values lie, and large
ones are walked through.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from google.protobuf.message import DecodeError

from shard_validation.example_layout import MIN_WALKED_BYTES, Layouts, Payload, Values, compile_walk
from shard_validation.example_message import Example
from shard_validation.example_size import MIN_SCANNED_BYTES, parsed_size_fault
from shard_validation.feature_checks import ValuesCheck, compile_feature_check, compile_values_check, missing
from shard_validation.reason_codes import ReasonCode
from shard_validation.reasons import Fault
from shard_validation.requirements import DataRequirements
from shard_validation.statistics import ShardStatistics
from shared.example_schema import FeatureSpec

PayloadCheck = Callable[[Payload, int], list[Fault] | None]
"""Takes a payload and the record's index; returns what is wrong with it, None where nothing is."""


def compile_payload_check(requirements: DataRequirements, statistics: ShardStatistics) -> PayloadCheck:
    """Return a check of a whole example against every stated feature."""
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
    """Return the check by the protobuf runtime, of payloads of any layout."""
    checks = [
        (spec.name, compile_feature_check(spec, check), spec)
        for spec, check in zip(requirements.features, check_values, strict=True)
    ]
    max_unknown_bytes = requirements.limits.max_unknown_bytes
    parse = Example.FromString

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


def _absent(spec: FeatureSpec) -> Fault | None:
    return missing(spec) if spec.required else None


def _not_protobuf(error: DecodeError) -> Fault:
    return Fault(
        code=ReasonCode.EXAMPLE_NOT_PROTOBUF,
        expected="a serialized tf.train.Example",
        seen=str(error) or "other bytes",
    )


def _unknown(example: Any, size_bytes: int, max_bytes: int) -> Fault | None:
    """Compare with what would be written anew: catches what the parser kept as unknown and what it dropped."""
    example.DiscardUnknownFields()
    unknown = size_bytes - example.ByteSize()
    if unknown <= max_bytes:
        return None
    return Fault(
        code=ReasonCode.EXAMPLE_UNKNOWN_FIELDS,
        expected=f"at most {max_bytes} bytes beside the example's own fields (limits.max_unknown_bytes)",
        seen=f"{unknown} of {size_bytes} bytes",
    )
