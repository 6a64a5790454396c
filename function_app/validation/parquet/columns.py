"""Which column is which feature, and whether its type fits."""

from __future__ import annotations

from typing import Any

from function_app.validation.feature_checks import missing
from function_app.validation.reason_codes import ReasonCode
from function_app.validation.reasons import Fault
from shared.example_schema import FeatureSpec

_KINDS = {
    "BOOLEAN": "int64",
    "INT32": "int64",
    "INT64": "int64",
    "FLOAT": "float",
    "DOUBLE": "float",
    "BYTE_ARRAY": "bytes",
    "FIXED_LEN_BYTE_ARRAY": "bytes",
}
_OTHER_MEANINGS = frozenset({"DECIMAL", "DATE", "TIME", "TIMESTAMP", "INTERVAL", "FLOAT16", "UUID"})
"""Logical types of which the stored number or bytes is not the value."""
_LEAVES = ("", ".bytes", ".list.element", ".list.item", ".list.array", ".bag.array_element")
"""What may follow a feature's name: nothing, Hugging Face's image structure, or a list as writers name it."""


def match_columns(schema: Any, features: tuple[FeatureSpec, ...]) -> tuple[dict[int, FeatureSpec], list[Fault]]:
    """Return the feature of each column that has one, and what is wrong with the schema."""
    columns = [schema.column(i) for i in range(len(schema.names))]
    by_path = {column.path: index for index, column in enumerate(columns)}
    matched: dict[int, FeatureSpec] = {}
    faults: list[Fault] = []
    for spec in features:
        index = next((by_path[spec.name + leaf] for leaf in _LEAVES if spec.name + leaf in by_path), None)
        if index is None:
            faults += [missing(spec)] if spec.required else []
        elif fault := _type_fault(spec, columns[index]):
            faults.append(fault)
        else:
            matched[index] = spec
    return matched, faults


def _type_fault(spec: FeatureSpec, column: Any) -> Fault | None:
    logical = column.logical_type.type
    kind = None if logical in _OTHER_MEANINGS else _KINDS.get(column.physical_type)
    if kind != spec.kind:
        seen = f"{column.physical_type} ({logical})" if logical != "NONE" else column.physical_type
        return Fault(code=ReasonCode.FEATURE_WRONG_KIND, feature=spec.name, expected=spec.kind, seen=seen)
    if column.max_repetition_level > (1 if spec.shape else 0):
        return Fault(
            code=ReasonCode.FEATURE_WRONG_SHAPE,
            feature=spec.name,
            expected=f"a column of shape {list(spec.shape)}",
            seen=f"lists, nested {column.max_repetition_level} deep",
        )
    return None
