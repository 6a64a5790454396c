"""The metadata in a footer. It is checked here, because pyarrow aborts the process on an inconsistent footer.

Source of the layout: apache/parquet-format, parquet.thrift (FileMetaData).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shard_validation.parquet.thrift import BINARY, I32, I64, Wanted

TYPES = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW")
_CONVERTED = {5: "DECIMAL", 6: "DATE", 7: "TIME", 8: "TIME", 9: "TIMESTAMP", 10: "TIMESTAMP", 21: "INTERVAL"}
_LOGICAL = {5: "DECIMAL", 6: "DATE", 7: "TIME", 8: "TIMESTAMP", 14: "UUID", 15: "FLOAT16"}
"""Logical types whose value is not the stored number or bytes."""
_REQUIRED, _OPTIONAL, _REPEATED = range(3)
_MAX_DEPTH = 32

_COLUMN: Wanted = {1: I32, 2: {}, 3: {}, 4: I32, 5: I64, 6: I64, 7: I64, 9: I64, 11: I64, 16: {2: {}, 3: {}}}
_SCHEMA: Wanted = {1: I32, 2: I32, 3: I32, 4: BINARY, 5: I32, 6: I32, 10: {number: {} for number in _LOGICAL}}
_ENCRYPTION_ALGORITHM, _CRYPTO_METADATA = 8, 8
"""Fields of the file and of a column chunk that are set if columns are encrypted and the footer is not."""
FILE: Wanted = {
    2: _SCHEMA,
    3: I64,
    4: {1: {1: BINARY, 3: _COLUMN, _CRYPTO_METADATA: {}}, 2: I64, 3: I64},
    _ENCRYPTION_ALGORITHM: {},
}


class MetadataError(ValueError):
    """The footer can be read, but is inconsistent."""


@dataclass(frozen=True, kw_only=True)
class Leaf:
    """A column of the schema."""

    path: str
    physical_type: str
    type_length: int
    logical_type: str
    """Empty where the stored value is the value."""
    max_definition_level: int
    """0 if every row has a value."""
    max_repetition_level: int
    """0 if no row has more than one value."""


@dataclass(frozen=True, kw_only=True)
class RowGroup:
    """A row group and its column chunks, as field id → value."""

    num_rows: int
    chunks: Sequence[Mapping[int, Any]]


@dataclass(frozen=True, kw_only=True)
class Metadata:
    """The parts of a footer that validation needs."""

    num_rows: int
    leaves: Sequence[Leaf]
    row_groups: Sequence[RowGroup]
    offset: int
    """Position at which the footer begins and the data ends."""


def is_encrypted(fields: Mapping[int, Any]) -> bool:
    """Whether a column is encrypted. Raises MetadataError."""
    try:
        chunks = [chunk for group in fields.get(4, []) for chunk in group.get(1, [])]
        return _ENCRYPTION_ALGORITHM in fields or any(_CRYPTO_METADATA in chunk for chunk in chunks)
    except (TypeError, AttributeError) as error:
        raise MetadataError(f"a field of the wrong type: {error!r}") from error


def metadata_of(fields: Mapping[int, Any], offset: int) -> Metadata:
    """Return the metadata in the fields of a FileMetaData. Raises MetadataError."""
    try:
        leaves = _leaves(fields[2])
        groups = [_row_group(group, leaves) for group in fields[4]]
        num_rows = fields[3]
        if not isinstance(num_rows, int) or num_rows < 0:
            raise MetadataError(f"a file with {num_rows!r} rows")
        return Metadata(num_rows=num_rows, leaves=leaves, row_groups=groups, offset=offset)
    except (LookupError, TypeError, AttributeError, UnicodeDecodeError) as error:
        raise MetadataError(f"a required field that is missing or of the wrong type: {error!r}") from error


def _row_group(group: Mapping[int, Any], leaves: Sequence[Leaf]) -> RowGroup:
    chunks = [_chunk(chunk, leaf) for chunk, leaf in zip(group[1], leaves, strict=False)]
    if len(group[1]) != len(leaves):
        raise MetadataError(f"a row group with {len(group[1])} columns, where the schema has {len(leaves)}")
    if not isinstance(group[3], int) or group[3] < 0:
        raise MetadataError(f"a row group with {group[3]!r} rows")
    return RowGroup(num_rows=group[3], chunks=chunks)


def _chunk(chunk: Mapping[int, Any], leaf: Leaf) -> Mapping[int, Any]:
    members: Mapping[int, Any] = chunk[3]
    path = b".".join(members[3]).decode()
    seen = (path, TYPES[_index(members[1], TYPES)])
    if seen != (leaf.path, leaf.physical_type):
        raise MetadataError(f"column {leaf.path} as {seen}, where the schema says {leaf.physical_type}")
    _index(members[4], CODECS)
    numbers = [*(members[key] for key in (5, 6, 7, 9)), members.get(11, 0), *members[2]]
    if not all(isinstance(number, int) for number in numbers):
        raise MetadataError(f"column {leaf.path} with sizes or offsets that are not numbers")
    _check_histograms(members.get(16, {}), leaf)
    if 0 < members[9] <= members.get(11, 0):
        raise MetadataError(f"column {leaf.path} with its dictionary after its data")
    if chunk.get(1):
        raise MetadataError(f"column {leaf.path} in another file")
    return members


def _check_histograms(statistics: Mapping[int, Any], leaf: Leaf) -> None:
    """Reject histograms of levels that the column cannot have: pyarrow does not read such a column."""
    for key, highest in ((2, leaf.max_repetition_level), (3, leaf.max_definition_level)):
        if len(statistics.get(key, ())) not in {0, highest + 1}:
            raise MetadataError(f"column {leaf.path} with a histogram of levels that has not {highest + 1} entries")


def _index(value: Any, names: Sequence[str]) -> int:
    if not isinstance(value, int) or not 0 <= value < len(names):
        raise MetadataError(f"{value!r}, which stands for none of {list(names)}")
    return value


def _leaves(elements: Sequence[Mapping[int, Any]]) -> list[Leaf]:
    """Flatten the schema, which lists its tree in depth-first order. Raises MetadataError."""
    leaves: list[Leaf] = []
    # for each open group: number of children still to come, path, definition level, repetition level
    open_groups: list[tuple[int, list[bytes], int, int]] = [(_children(elements[0]), [], 0, 0)]
    for element in elements[1:]:
        while open_groups and open_groups[-1][0] == 0:
            open_groups.pop()
        if not open_groups or len(open_groups) > _MAX_DEPTH:
            raise MetadataError(f"a schema that is not one tree of at most {_MAX_DEPTH} levels")
        left, path, definition, repetition = open_groups.pop()
        open_groups.append((left - 1, path, definition, repetition))
        kind = element.get(3, _REQUIRED)
        below = [*path, element[4]]
        definition += kind in {_OPTIONAL, _REPEATED}
        repetition += kind == _REPEATED
        if 1 in element:
            leaves.append(_leaf(element, below, definition, repetition))
        else:
            open_groups.append((_children(element), below, definition, repetition))
    if any(left for left, *_ in open_groups) or not leaves:
        raise MetadataError("a schema without columns, or with fewer than it states")
    return leaves


def _children(element: Mapping[int, Any]) -> int:
    count = element.get(5, 0)
    if not isinstance(count, int) or count < 0:
        raise MetadataError(f"a group with {count!r} columns")
    return count


def _leaf(element: Mapping[int, Any], path: Sequence[bytes], definition: int, repetition: int) -> Leaf:
    logical = next((_LOGICAL[number] for number in element.get(10, {})), "")
    physical_type = TYPES[_index(element[1], TYPES)]
    type_length = element.get(2, 0)
    if physical_type == "FIXED_LEN_BYTE_ARRAY" and (not isinstance(type_length, int) or type_length < 1):
        raise MetadataError(f"a column of fixed length {type_length!r}")
    return Leaf(
        path=b".".join(path).decode(),
        physical_type=physical_type,
        type_length=type_length,
        logical_type=logical or _CONVERTED.get(element.get(6, -1), ""),
        max_definition_level=definition,
        max_repetition_level=repetition,
    )
