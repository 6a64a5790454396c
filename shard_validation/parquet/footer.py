"""Find, bound and read the footer of a Parquet file, and locate its column chunks.

Source of the layout: apache/parquet-format, README.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from shard_validation.content import PARQUET_ENCRYPTED_MAGIC, PARQUET_MAGIC
from shard_validation.parquet.blocks import BlockFile
from shard_validation.parquet.metadata import (
    CODECS,
    FILE,
    Leaf,
    Metadata,
    MetadataError,
    is_encrypted,
    metadata_of,
)
from shard_validation.parquet.thrift import CompactReader, ThriftError, ThriftTooComplexError
from shard_validation.reasons import FaultError, ReasonCode
from shard_validation.requirements import Limits

_TAIL_BYTES = 8
"""Length of the footer, and the magic."""
MAX_FOOTER_VALUES = 200_000
"""Each value becomes an object of a hundred bytes or more, here and in pyarrow."""


@dataclass(frozen=True, kw_only=True)
class ColumnChunk:
    """One column of one row group."""

    row_group: int
    column: int
    leaf: Leaf
    compression: str
    encodings: frozenset[int]
    start: int
    stop: int
    """Byte range in the file."""
    num_rows: int
    num_values: int
    first_row: int
    """Index of the first row of the row group in the file."""

    @property
    def path(self) -> str:
        """The column's name, dotted where it is nested."""
        return self.leaf.path

    @property
    def is_nested(self) -> bool:
        """Whether a row may have any number of values."""
        return self.leaf.max_repetition_level > 0


def read_footer(file: BlockFile, size_bytes: int, limits: Limits) -> Metadata:
    """Return the metadata in the footer. Raises FaultError."""
    offset, length = _find(file, size_bytes, limits)
    fields = _read(file.read_at(offset, length), offset)
    _check_numbers(fields, limits, offset)
    try:
        if is_encrypted(fields):
            raise FaultError(ReasonCode.PARQUET_ENCRYPTED, "unencrypted columns", "an encryption algorithm", offset)
        return metadata_of(fields, offset)
    except MetadataError as error:
        raise FaultError(ReasonCode.PARQUET_FOOTER_CORRUPT, "a consistent footer", str(error), offset) from error


def _find(file: BlockFile, size_bytes: int, limits: Limits) -> tuple[int, int]:
    """Return offset and length of the footer."""
    tail_offset = size_bytes - _TAIL_BYTES
    tail = file.read_at(max(0, tail_offset), _TAIL_BYTES)
    if file.read_at(0, 4) == PARQUET_ENCRYPTED_MAGIC or tail.endswith(PARQUET_ENCRYPTED_MAGIC):
        raise FaultError(ReasonCode.PARQUET_ENCRYPTED, "an unencrypted file", "magic PARE", 0)
    if tail_offset < len(PARQUET_MAGIC) or not tail.endswith(PARQUET_MAGIC):
        seen = tail[-4:].hex(" ") if tail_offset >= len(PARQUET_MAGIC) else f"{size_bytes} bytes in all"
        raise FaultError(ReasonCode.PARQUET_NO_FOOTER, "magic PAR1 at the end", seen, size_bytes)
    length = int.from_bytes(tail[:4], "little")
    largest = min(limits.max_footer_bytes, tail_offset - len(PARQUET_MAGIC))
    if not 0 < length <= largest:
        raise FaultError(
            ReasonCode.PARQUET_FOOTER_LENGTH, f"1 to {largest} bytes of footer", f"a length of {length}", tail_offset
        )
    return tail_offset - length, length


def _read(footer: bytes, offset: int) -> dict[int, Any]:
    try:
        return CompactReader(footer, MAX_FOOTER_VALUES).read_struct(FILE)
    except ThriftTooComplexError as error:
        expected = f"a footer of at most {MAX_FOOTER_VALUES} values"
        raise FaultError(ReasonCode.PARQUET_TOO_COMPLEX, expected, str(error), offset) from error
    except ThriftError as error:
        raise FaultError(ReasonCode.PARQUET_FOOTER_CORRUPT, "a readable footer", str(error), offset) from error


def _check_numbers(fields: Mapping[int, Any], limits: Limits, offset: int) -> None:
    for what, seen, largest in (
        ("schema elements (limits.max_columns)", fields.get(2), limits.max_columns),
        ("row groups (limits.max_row_groups)", fields.get(4), limits.max_row_groups),
    ):
        if isinstance(seen, list) and len(seen) > largest:
            raise FaultError(ReasonCode.PARQUET_TOO_COMPLEX, f"at most {largest} {what}", str(len(seen)), offset)


def column_chunks(metadata: Metadata, row_group: int, first_row: int) -> Iterator[ColumnChunk]:
    """Yield the column chunks of a row group. Raises FaultError if one is outside the data."""
    group = metadata.row_groups[row_group]
    for index, (leaf, members) in enumerate(zip(metadata.leaves, group.chunks, strict=True)):
        start, stop, num_values = _start(members), _start(members) + members[7], members[5]
        if not len(PARQUET_MAGIC) <= start <= stop <= metadata.offset or num_values < 0:
            raise FaultError(
                ReasonCode.PARQUET_FOOTER_CORRUPT,
                f"column chunks between bytes {len(PARQUET_MAGIC)} and {metadata.offset}",
                f"{num_values} values at {start} to {stop}",
                metadata.offset,
                leaf.path,
            )
        yield ColumnChunk(
            row_group=row_group,
            column=index,
            leaf=leaf,
            compression=CODECS[members[4]],
            encodings=frozenset(members[2]),
            start=start,
            stop=stop,
            num_rows=group.num_rows,
            num_values=num_values,
            first_row=first_row,
        )


def _start(members: Mapping[int, Any]) -> int:
    """Return where the first page begins; some writers state 0 if there is no dictionary."""
    dictionary, data = members.get(11, 0), members[9]
    return int(dictionary if dictionary > 0 and not 0 < data <= dictionary else data)
