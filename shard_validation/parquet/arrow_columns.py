"""The columns of one shard, decoded in batches of rows and checked. Runs in the process that decodes.

pyarrow decodes; only pages of byte arrays above ``limits.max_page_bytes`` are read in pieces (`byte_arrays`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from shard_validation.parquet.blocks import BlockFile
from shard_validation.parquet.byte_arrays import DEFERRED, PageDecoder
from shard_validation.parquet.column_checks import ColumnCheck
from shard_validation.parquet.footer import ColumnChunk
from shard_validation.parquet.pages import walk_pages
from shard_validation.reasons import Fault, FaultError, ReasonCode
from shard_validation.requirements import DataRequirements
from shard_validation.validate import FeatureStatistics
from shared.manifest import FeatureSpec

_BUFFER_BYTES = 2 << 20
_ROWS_PER_SIGN = 64
"""Decoding 64 images takes less than a second."""
_FEWER = 16
"""Rows that take too much memory are decoded again in batches that are smaller by this factor."""
_WHOLE_ROWS = 1000
"""Batch size for a file that is not a shard."""


class ArrowColumns:
    """Decodes and checks column chunks of one shard."""

    def __init__(
        self, file: BlockFile, footer_offset: int, requirements: DataRequirements, alive: Callable[[], None]
    ) -> None:
        """Open the file. Raises FaultError: pyarrow may reject a footer although it is consistent."""
        self._requirements = requirements
        self._file = file
        self._alive = alive
        try:
            self._reader = pq.ParquetFile(file, pre_buffer=False, buffer_size=_BUFFER_BYTES)
        except (pa.ArrowException, OSError) as error:
            raise FaultError(
                ReasonCode.PARQUET_FOOTER_CORRUPT, "a footer that pyarrow reads", str(error), footer_offset
            ) from error

    def check(
        self,
        chunk: ColumnChunk,
        rows_at_a_time: int | None,
        spec: FeatureSpec | None,
        statistics: FeatureStatistics,
    ) -> Iterator[tuple[Fault, int]]:
        """Yield the faults of a column chunk with their rows, and count the others. Raises FaultError.

        For columns that are not features, only the number of rows is checked. Without ``rows_at_a_time``, pages are
        decoded in pieces, because they are too large for memory.
        """
        column_check = ColumnCheck(spec, self._requirements, statistics) if spec is not None else None
        try:
            if rows_at_a_time is None:
                yield from self._check_in_pieces(chunk, column_check)
            else:
                yield from self._check_batches(chunk, rows_at_a_time, column_check)
        except MemoryError as error:
            expected, seen = "rows that can be decoded one by one", "too little memory for one of them"
            raise FaultError(ReasonCode.PARQUET_TOO_COMPLEX, expected, seen, chunk.start, chunk.path) from error

    def _check_batches(
        self, chunk: ColumnChunk, rows_at_a_time: int, column_check: ColumnCheck | None
    ) -> Iterator[tuple[Fault, int]]:
        num_rows = 0
        try:
            for column in self._batches(chunk, rows_at_a_time, is_feature=column_check is not None):
                self._alive()
                if column_check is not None:
                    yield from column_check.faults(column, chunk.first_row + num_rows)
                num_rows += len(column)
        except (FaultError, MemoryError):  # pyarrow's error is a MemoryError, too
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

    def _check_in_pieces(self, chunk: ColumnChunk, column_check: ColumnCheck | None) -> Iterator[tuple[Fault, int]]:
        decoder = PageDecoder(self._file, chunk, self._requirements.limits.max_page_bytes)
        rows = (
            value
            for page in walk_pages(self._file, chunk, self._requirements.limits, is_streamed=True)
            for value in decoder.values(page)
        )
        for row, value in chain(enumerate(rows), decoder.deferred()):
            if row % _ROWS_PER_SIGN == 0:
                self._alive()
            if value is not DEFERRED and column_check is not None:
                fault = column_check.row_fault(value, chunk.first_row + row)
                if fault is not None:
                    yield fault, chunk.first_row + row

    def _batches(self, chunk: ColumnChunk, rows_at_a_time: int, *, is_feature: bool) -> Iterator[Any]:
        """Yield the column in batches; in smaller ones if they do not fit into memory."""
        done = 0
        while True:
            batches = self._reader.iter_batches(
                rows_at_a_time, row_groups=[chunk.row_group], columns=[chunk.path], use_threads=False
            )
            position = 0
            try:
                for batch in batches:
                    start, position = position, position + batch.num_rows
                    if position > done:
                        column = batch.column(0).slice(done - start)
                        column = _leaf(column, chunk) if is_feature else column
                        done = position
                        yield column
            except MemoryError:
                if rows_at_a_time == 1:
                    raise
                rows_at_a_time = max(1, rows_at_a_time // _FEWER)
            else:
                return


def _leaf(column: Any, chunk: ColumnChunk) -> Any:
    """Return the only leaf that was read of a column of structs, without a dictionary, with texts as bytes."""
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
    wanted = pa.large_binary() if chunk.leaf.physical_type.endswith("BYTE_ARRAY") else plain
    if is_view or wanted != item:
        column = column.cast(pa.large_list(wanted) if is_list else wanted)
    return column


def rows_of(file: BlockFile, columns: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of a file in batches, with these of its columns."""
    reader = pq.ParquetFile(file, pre_buffer=False, buffer_size=_BUFFER_BYTES)
    for batch in reader.iter_batches(_WHOLE_ROWS, columns=list(columns), use_threads=False):
        yield batch.to_pylist()
