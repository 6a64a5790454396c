"""Which column is which feature, and whether its type fits."""

from __future__ import annotations

from collections.abc import Sequence

from shard_validation.feature_checks import missing
from shard_validation.parquet.metadata import Leaf
from shard_validation.reason_codes import ReasonCode
from shard_validation.reasons import Fault
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
_LEAVES = ("", ".bytes", ".list.element", ".list.item", ".list.array", ".bag.array_element")
"""What may follow a feature's name: nothing, Hugging Face's image structure, or a list as writers name it."""


def match_columns(
    leaves: Sequence[Leaf], features: tuple[FeatureSpec, ...]
) -> tuple[dict[int, FeatureSpec], list[Fault]]:
    """Return the feature of each column that has one, and what is wrong with the schema."""
    by_path = {leaf.path: index for index, leaf in enumerate(leaves)}
    matched: dict[int, FeatureSpec] = {}
    faults: list[Fault] = []
    for spec in features:
        index = next((by_path[spec.name + leaf] for leaf in _LEAVES if spec.name + leaf in by_path), None)
        if index is None:
            faults += [missing(spec)] if spec.required else []
        elif fault := _type_fault(spec, leaves[index]):
            faults.append(fault)
        else:
            matched[index] = spec
    return matched, faults


def _type_fault(spec: FeatureSpec, leaf: Leaf) -> Fault | None:
    kind = None if leaf.logical_type else _KINDS.get(leaf.physical_type)
    if kind != spec.kind:
        seen = f"{leaf.physical_type} ({leaf.logical_type})" if leaf.logical_type else leaf.physical_type
        return Fault(code=ReasonCode.FEATURE_WRONG_KIND, feature=spec.name, expected=spec.kind, seen=seen)
    if leaf.max_repetition_level > (1 if spec.shape else 0):
        return Fault(
            code=ReasonCode.FEATURE_WRONG_SHAPE,
            feature=spec.name,
            expected=f"a column of shape {list(spec.shape)}",
            seen=f"lists, nested {leaf.max_repetition_level} deep",
        )
    return None
