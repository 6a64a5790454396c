"""Columns of numbers and of lists, decoded by pyarrow in batches whose size is bounded beforehand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shard_validation.parquet.blocks import BlockFile
from shard_validation.parquet.footer import ColumnChunk
from shard_validation.reasons import FaultError, ReasonCode
from shard_validation.requirements import Limits

BATCH_BYTES = 8 << 20
MAX_BATCH_ROWS = 8192


def open_with_pyarrow(file: BlockFile, offset: int) -> Any:
    """Return pyarrow's reader over the file, with as little read-ahead as possible. Raises FaultError.

    ``offset`` is that of the footer, which pyarrow may reject although it is consistent.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    file.seek(0)
    try:
        return pq.ParquetFile(file, pre_buffer=False, buffer_size=64 << 10)
    except (pa.ArrowException, OSError) as error:
        raise FaultError(
            ReasonCode.PARQUET_FOOTER_CORRUPT, "a footer that pyarrow reads", str(error), offset
        ) from error


def batch_rows(chunk: ColumnChunk, largest_page_bytes: int, limits: Limits) -> int:
    """Return how many rows to decode at a time. Raises FaultError where a single row may be too large.

    A byte array is never longer than its page; with a dictionary, every row may repeat the longest value.
    """
    if chunk.is_nested and chunk.num_values > limits.max_nested_values:
        raise FaultError(
            ReasonCode.PARQUET_TOO_COMPLEX,
            f"at most {limits.max_nested_values} nested values in a row group (limits.max_nested_values)",
            str(chunk.num_values),
            chunk.start,
            chunk.path,
        )
    longest = {"BYTE_ARRAY": largest_page_bytes, "FIXED_LEN_BYTE_ARRAY": chunk.leaf.type_length}
    value_bytes = longest.get(chunk.leaf.physical_type, 8)
    values_per_row = chunk.num_values if chunk.is_nested else 1
    rows = BATCH_BYTES // max(1, value_bytes * values_per_row)
    if rows < 1 and value_bytes * values_per_row > limits.max_parsed_bytes:
        raise FaultError(
            ReasonCode.PARQUET_TOO_COMPLEX,
            f"rows that take at most {limits.max_parsed_bytes} bytes (limits.max_parsed_bytes)",
            f"up to {values_per_row} values of {value_bytes} bytes",
            chunk.start,
            chunk.path,
        )
    return max(1, min(rows, MAX_BATCH_ROWS))


def read_rows(
    reader: Any, chunk: ColumnChunk, rows_at_a_time: int, *, is_feature: bool = True
) -> Iterator[list[Any]]:
    """Yield the rows of a column chunk in batches: numbers, lists of them, None. Raises FaultError.

    For columns that are not features only the number of rows matters: their values may be anything.
    """
    import pyarrow as pa

    num_rows = 0
    try:
        for batch in reader.iter_batches(rows_at_a_time, row_groups=[chunk.row_group], columns=[chunk.path]):
            num_rows += batch.num_rows
            yield _leaf(batch.column(0), chunk).to_pylist() if is_feature else [None] * batch.num_rows
    except FaultError:
        raise
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise FaultError(
            ReasonCode.PARQUET_PAGE_CORRUPT, "decodable pages", str(error), chunk.start, chunk.path
        ) from error
    if num_rows != chunk.num_rows:
        raise FaultError(
            ReasonCode.PARQUET_ROWS_DIFFER,
            f"{chunk.num_rows} rows, as the footer states",
            str(num_rows),
            chunk.start,
            chunk.path,
        )


def _leaf(column: Any, chunk: ColumnChunk) -> Any:
    """Return the only leaf that was read of a column of structs, without its dictionary, and texts as bytes."""
    import pyarrow as pa

    kinds = pa.types
    while kinds.is_struct(column.type):
        column = column.flatten()[0]
    if kinds.is_dictionary(column.type):
        column = column.dictionary_decode()
    is_view = kinds.is_list_view(column.type) or kinds.is_large_list_view(column.type)
    is_list = is_view or any(
        holds(column.type) for holds in (kinds.is_list, kinds.is_large_list, kinds.is_fixed_size_list)
    )
    item = column.type.value_type if is_list else column.type
    plain = item.value_type if kinds.is_dictionary(item) else item
    if kinds.is_nested(plain) or kinds.is_temporal(plain):
        raise FaultError(
            ReasonCode.FEATURE_WRONG_KIND, "values, or lists of them", str(column.type), chunk.start, chunk.path
        )
    # Arrow has more names for byte arrays: strings, views, JSON texts
    wanted = pa.large_binary() if chunk.leaf.physical_type == "BYTE_ARRAY" else plain
    if is_view or wanted != item:
        column = column.cast(pa.large_list(wanted) if is_list else wanted)
    return column
