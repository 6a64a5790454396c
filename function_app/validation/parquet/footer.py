"""The footer: bounded and looked through here, then read by pyarrow.

Source of the layout: apache/parquet-format, README.md and parquet.thrift.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from function_app.validation.content import PARQUET_ENCRYPTED_MAGIC, PARQUET_MAGIC
from function_app.validation.limits import Limits
from function_app.validation.parquet.blocks import BlockFile
from function_app.validation.parquet.faults import ParquetFaultError
from function_app.validation.parquet.thrift import CompactReader, ThriftError, ThriftTooComplexError
from function_app.validation.reason_codes import ReasonCode

_TAIL_BYTES = 8
"""The footer's length and the magic."""
MAX_FOOTER_VALUES = 200_000
"""Each may become a structure of hundreds of bytes in pyarrow."""
_ENCRYPTION_ALGORITHM = 8
"""Field of FileMetaData: set where columns are encrypted and the footer is not."""


@dataclass(frozen=True, kw_only=True)
class ColumnChunk:
    """One column of one row group."""

    row_group: int
    column: int
    path: str
    physical_type: str
    compression: str
    is_nested: bool
    """A row may have any number of values."""
    max_definition_level: int
    """0: no row may be without a value."""
    start: int
    stop: int
    """Byte range within the file."""
    num_rows: int
    num_values: int
    first_row: int
    """Of this row group, counted over the file."""


def read_footer(file: BlockFile, size_bytes: int, limits: Limits) -> Any:
    """Return pyarrow's FileMetaData. Raises ParquetFaultError."""
    tail_offset = size_bytes - _TAIL_BYTES
    tail = file.read_at(max(0, tail_offset), _TAIL_BYTES)
    if file.read_at(0, 4) == PARQUET_ENCRYPTED_MAGIC or tail.endswith(PARQUET_ENCRYPTED_MAGIC):
        raise ParquetFaultError(ReasonCode.PARQUET_ENCRYPTED, "a file that is not encrypted", "magic PARE", 0)
    if tail_offset < len(PARQUET_MAGIC) or not tail.endswith(PARQUET_MAGIC):
        seen = tail[-4:].hex(" ") if tail_offset >= len(PARQUET_MAGIC) else f"{size_bytes} bytes in all"
        raise ParquetFaultError(ReasonCode.PARQUET_NO_FOOTER, "magic PAR1 at the end", seen, size_bytes)
    length = int.from_bytes(tail[:4], "little")
    largest = min(limits.max_footer_bytes, tail_offset - len(PARQUET_MAGIC))
    if not 0 < length <= largest:
        raise ParquetFaultError(
            ReasonCode.PARQUET_FOOTER_LENGTH, f"1 to {largest} bytes of footer", f"a length of {length}", tail_offset
        )
    offset = tail_offset - length
    _look_through(file.read_at(offset, length), offset)
    return _parse(file, offset)


def _look_through(footer: bytes, offset: int) -> None:
    """Count what is in a footer before pyarrow makes structures of it."""
    try:
        found = CompactReader(footer, MAX_FOOTER_VALUES).read_struct({_ENCRYPTION_ALGORITHM: {}})
    except ThriftTooComplexError as error:
        expected = f"a footer of at most {MAX_FOOTER_VALUES} values"
        raise ParquetFaultError(ReasonCode.PARQUET_TOO_COMPLEX, expected, str(error), offset) from error
    except ThriftError as error:
        raise ParquetFaultError(ReasonCode.PARQUET_FOOTER_CORRUPT, "a readable footer", str(error), offset) from error
    if _ENCRYPTION_ALGORITHM in found:
        raise ParquetFaultError(
            ReasonCode.PARQUET_ENCRYPTED, "columns that are not encrypted", "an encryption algorithm", offset
        )


def _parse(file: BlockFile, offset: int) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file.seek(0)
    try:
        return pq.read_metadata(file)
    except (pa.ArrowException, OSError) as error:
        raise ParquetFaultError(ReasonCode.PARQUET_FOOTER_CORRUPT, "a readable footer", str(error), offset) from error


def check_size(metadata: Any, limits: Limits) -> None:
    """Bound the numbers of columns and row groups. Raises ParquetFaultError."""
    for what, seen, largest in (
        ("columns (limits.max_columns)", metadata.num_columns, limits.max_columns),
        ("row groups (limits.max_row_groups)", metadata.num_row_groups, limits.max_row_groups),
    ):
        if seen > largest:
            raise ParquetFaultError(ReasonCode.PARQUET_TOO_COMPLEX, f"at most {largest} {what}", str(seen))


def column_chunks(metadata: Any, row_group: int, first_row: int, data_stop: int) -> Iterator[ColumnChunk]:
    """Yield the column chunks of a row group; ``data_stop`` is where the footer begins.

    Raises ParquetFaultError where one lies outside of the data.
    """
    group = metadata.row_group(row_group)
    for index in range(group.num_columns):
        chunk, column = group.column(index), metadata.schema.column(index)
        start = _start(chunk)
        stop = start + chunk.total_compressed_size
        path = chunk.path_in_schema
        if path != column.path:
            raise ParquetFaultError(
                ReasonCode.PARQUET_FOOTER_CORRUPT, f"column {column.path} as in the schema", path, None, path
            )
        if not len(PARQUET_MAGIC) <= start <= stop <= data_stop or chunk.num_values < 0 or group.num_rows < 0:
            raise ParquetFaultError(
                ReasonCode.PARQUET_FOOTER_CORRUPT,
                f"column chunks between bytes {len(PARQUET_MAGIC)} and {data_stop}",
                f"{chunk.num_values} values at {start} to {stop}",
                data_stop,
                path,
            )
        yield ColumnChunk(
            row_group=row_group,
            column=index,
            path=path,
            physical_type=column.physical_type,
            compression=chunk.compression,
            is_nested=column.max_repetition_level > 0,
            max_definition_level=column.max_definition_level,
            start=start,
            stop=stop,
            num_rows=group.num_rows,
            num_values=chunk.num_values,
            first_row=first_row,
        )


def _start(chunk: Any) -> int:
    dictionary = chunk.dictionary_page_offset if chunk.has_dictionary_page else None
    return int(dictionary if dictionary is not None and dictionary > 0 else chunk.data_page_offset)
