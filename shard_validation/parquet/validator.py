"""Validate a Parquet shard: content CRC, footer, schema, then every page of every column chunk."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import Any

from shard_validation.features import missing
from shard_validation.parquet.blocks import BlockFile
from shard_validation.parquet.byte_arrays import decodes
from shard_validation.parquet.decoded import DecodedColumns, batch_rows
from shard_validation.parquet.footer import ColumnChunk, column_chunks, read_footer
from shard_validation.parquet.metadata import Leaf, Metadata
from shard_validation.parquet.pages import Page, check_body, walk_pages
from shard_validation.reasons import Fault, FaultError, ReasonCode
from shard_validation.validate import Paused, ShardVerdict, Task
from shared.manifest import FeatureSpec

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
"""Suffixes of a feature's column: none, Hugging Face's image structure, or a list as various writers name it."""
_NO_RECORDS = Fault(code=ReasonCode.NO_RECORDS, expected="at least one row", seen="none")


def validate_parquet(task: Task) -> ShardVerdict | Paused:
    """Validate a Parquet shard. It can pause while its CRC is taken, and after each row group."""
    checkpoint = task.checkpoint or {"position": 0, "row_group": 0, "num_rows": 0}
    position = task.take_content_crc(checkpoint["position"])
    if position < task.source.size_bytes:
        return _paused(task, position, 0, 0)
    try:
        file = BlockFile(task.source)
        metadata = read_footer(file, task.source.size_bytes, task.requirements.limits)
        with DecodedColumns(file, _shard_members(task, metadata), task.requirements.limits) as columns:
            columns.open(metadata.offset, lambda: None)
            walk = _ParquetWalk(task, file, metadata, columns)
            if task.checkpoint is None or not checkpoint["row_group"]:
                walk.check_schema()
            return walk.check_row_groups(checkpoint["row_group"], checkpoint["num_rows"])
    except FaultError as error:
        task.report(error.fault, byte_offset=error.byte_offset)
        return task.verdict()


def _paused(task: Task, position: int, row_group: int, num_rows: int) -> Paused:
    checkpoint = {
        "findings": task.findings(),
        "position": position,
        "row_group": row_group,
        "num_rows": num_rows,
    }
    return Paused(checkpoint=checkpoint, bytes_done=position)


class OutOfTimeError(FaultError):
    """A row group, which cannot pause, takes longer than one execution: the shard is rejected."""

    def __init__(self, row_group: int, num_rows: int, byte_offset: int, feature: str) -> None:
        super().__init__(
            ReasonCode.VALIDATION_TOO_LONG,
            "row groups that can be read within one execution (write smaller ones)",
            f"row group {row_group} of {num_rows} rows",
            byte_offset,
            feature,
        )


class _Pages:
    """The pages of a column chunk: their sizes, and which rows are in them."""

    def __init__(self, *, names_pages: bool) -> None:
        """Begin; without ``names_pages``, rows are placed at the beginning of the column chunk."""
        self.largest_bytes = self.uncompressed_bytes = 0
        self._names_pages = names_pages
        self._num_rows = 0
        self._first_rows = array("Q")
        self._offsets = array("Q")

    def add(self, page: Page) -> None:
        """Add the next page."""
        self.largest_bytes = max(self.largest_bytes, page.largest_bytes)
        self.uncompressed_bytes += page.uncompressed_bytes
        if self._names_pages and page.holds_rows:
            self._first_rows.append(self._num_rows)
            self._offsets.append(page.offset)
            self._num_rows += page.num_values

    def offset_of(self, row: int, chunk: ColumnChunk) -> int:
        """Return the byte offset of a row of the column chunk."""
        return self._offsets[bisect_right(self._first_rows, row) - 1] if self._offsets else chunk.start


class _ParquetWalk:
    """One pass over the row groups of a shard."""

    def __init__(self, task: Task, file: BlockFile, metadata: Metadata, columns: DecodedColumns) -> None:
        self._task = task
        self._limits = task.requirements.limits
        self._file = file
        self._metadata = metadata
        self._columns = columns
        self._features, self._schema_faults = _match_columns(self._metadata.leaves, task.requirements.features)
        for spec in self._features.values():
            task.statistics.feature(spec.name)

    def check_schema(self) -> None:
        """Report features without a column, or with a column of the wrong type."""
        for fault in self._schema_faults:
            self._task.report(fault)

    def check_row_groups(self, row_group: int, num_rows: int) -> ShardVerdict | Paused:
        """Check row groups from ``row_group`` to the end; ``num_rows`` rows precede it."""
        task, num_groups = self._task, len(self._metadata.row_groups)
        for index in range(row_group, num_groups):
            for chunk in column_chunks(self._metadata, index, num_rows):
                self._check_chunk(chunk)
            num_rows += self._metadata.row_groups[index].num_rows
            task.statistics.num_records = num_rows
            if index + 1 < num_groups and task.should_pause():
                return _paused(task, task.source.size_bytes, index + 1, num_rows)
        self._check_total(num_rows)
        return task.verdict()

    def _check_total(self, num_rows: int) -> None:
        if num_rows != self._metadata.num_rows:
            self._task.report(
                Fault(
                    code=ReasonCode.PARQUET_ROWS_DIFFER,
                    expected=f"{self._metadata.num_rows} rows, as the footer states",
                    seen=f"{num_rows} in its row groups",
                )
            )
        elif not num_rows:
            self._task.report(_NO_RECORDS)

    def _check_chunk(self, chunk: ColumnChunk) -> None:
        try:
            self._check_rows(chunk, self._bound_pages(chunk))
        except OutOfTimeError:
            raise
        except FaultError as error:
            self._task.report(error.fault, byte_offset=error.byte_offset)

    def _bound_pages(self, chunk: ColumnChunk) -> _Pages:
        """Read the header of every page, and compare the checksums, before anything is decoded. Raises FaultError."""
        is_streamed = decodes(chunk)
        pages = _Pages(names_pages=is_streamed)
        self._file.hold(chunk.start, chunk.stop)
        for page in walk_pages(self._file, chunk, self._limits, is_streamed=is_streamed):
            self._check_time(chunk)
            if page.largest_bytes <= self._limits.max_page_bytes:
                check_body(self._file, chunk, page)
            self._task.statistics.num_bytes += page.uncompressed_bytes
            pages.add(page)
        return pages

    def _check_rows(self, chunk: ColumnChunk, pages: _Pages) -> None:
        """Let another process decode and check the column chunk. Raises FaultError."""
        task, spec = self._task, self._features.get(chunk.column)
        feature = (spec, task.statistics.feature(spec.name)) if spec is not None else None
        rows_at_a_time = None
        if pages.largest_bytes <= self._limits.max_page_bytes:
            rows_at_a_time = batch_rows(chunk, pages.uncompressed_bytes, pages.largest_bytes, self._limits)
        checked = self._columns.check(chunk, rows_at_a_time, feature, lambda: self._check_time(chunk))
        for fault, row in checked.faults:
            task.report(fault, row, pages.offset_of(row - chunk.first_row, chunk))
        task.num_reasons += checked.num_faults - len(checked.faults)
        if spec is not None:
            task.statistics.features[spec.name] = checked.statistics
        if checked.error is not None:
            raise checked.error

    def _check_time(self, chunk: ColumnChunk) -> None:
        """Raise OutOfTimeError within a row group that takes too long."""
        if self._task.out_of_time():
            raise OutOfTimeError(chunk.row_group, chunk.num_rows, chunk.start, chunk.path)


def _shard_members(task: Task, metadata: Metadata) -> dict[str, Any]:
    """Return the members of the request that opens a shard in a decoder."""
    return {
        "size_bytes": task.source.size_bytes,
        "footer_offset": metadata.offset,
        "requirements": task.requirements.to_json(),
    }


def _match_columns(
    leaves: Sequence[Leaf], features: tuple[FeatureSpec, ...]
) -> tuple[dict[int, FeatureSpec], list[Fault]]:
    """Return the feature of each column that has one, and the faults of the schema."""
    by_path = {leaf.path: index for index, leaf in enumerate(leaves)}
    num_columns = Counter(leaf.path for leaf in leaves)
    matched: dict[int, FeatureSpec] = {}
    faults: list[Fault] = []
    for spec in features:
        index = next((by_path[spec.name + leaf] for leaf in _LEAVES if spec.name + leaf in by_path), None)
        if index is None:
            faults += [missing(spec, by_path)] if spec.required else []
        elif (number := num_columns[leaves[index].path]) > 1:
            seen = f"{number} columns of this name"  # readers refuse them, or read the first one
            code = ReasonCode.FEATURE_WRONG_SHAPE
            faults.append(Fault(code=code, feature=spec.name, expected="one column", seen=seen))
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
