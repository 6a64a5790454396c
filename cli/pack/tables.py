"""Tables: a Parquet or CSV file with a column for each feature and a row for each example.

A table may be larger than the memory. It is read batch by batch into a file of uncompressed values next to the
shards, which is mapped into memory: rows can then be read in any order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cli.errors import DISK_FULL, CliError
from cli.pack.collection import Entry, note_of_draw, split_off
from shard_validation.tfrecord.message import Value
from shared.manifest import FeatureKind, FeatureSpec
from shared.safe_text import shown

BATCH_BYTES = 8 << 20
MAX_BATCH_ROWS = 1 << 16
CSV_BLOCK_BYTES = 1 << 20
"""pyarrow reads about forty blocks ahead."""
MAX_CSV_BLOCK_BYTES = 64 << 20
"""A row must fit into a block. If a row does not, blocks grow up to this size."""
_CSV_COLUMN = re.compile(r"In CSV column #(\d+)")
_MAX_SHOWN = 10
"""Columns that a message names."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A collection of rows."""

    splits: Mapping[str, Sequence[Entry]]
    classes: tuple[str, ...]
    features: tuple[FeatureSpec, ...]
    columns: Mapping[str, Any] = field(repr=False)
    """pyarrow's columns by name, mapped from a file."""
    label: str | None
    path: Path
    notes: Sequence[str]
    stamp: str

    def where(self, entry: Entry) -> str:
        """See Collection."""
        return f"{self.path}, row {int(entry.key)} (the first is 0)"

    def load(self, entry: Entry) -> Mapping[str, Value]:
        """See Collection."""
        row = int(entry.key)
        values = {name: column[row].as_py() for name, column in self.columns.items()}
        if absent := [name for name, value in values.items() if value is None or value == []]:
            raise ValueError(f"columns without a value: {_first(absent)}")
        if holed := [n for n, value in values.items() if isinstance(value, list) and None in value]:
            raise ValueError(f"columns whose lists contain nulls: {_first(holed)}")
        if self.label is not None:
            values[self.label] = entry.label
        return values


def read_table(path: Path, rows_file: Path, *, label: str | None, validation_share: float, seed: int) -> Table:
    """Read a file by its suffix. ``rows_file`` gets its values, and must exist as long as the collection is used.

    Raises CliError, also for a column that cannot be a feature.
    """
    facts = path.stat()  # taken before reading, so that the next run notices a change during reading
    table = map_rows(path, rows_file)
    if twice := sorted({name for name in table.column_names if table.column_names.count(name) > 1}):
        raise CliError(f"{path}: several columns have the same name: {_first(twice)}. Rename them.")
    if label is not None and label not in table.column_names:
        raise CliError(
            f"{path}: there is no column {label!r} for --label. The columns are {_first(table.column_names)}."
        )
    features = [_feature(path, name, table.schema.field(name).type) for name in table.column_names]
    labels, classes = _labels(path, table, label)
    if label is not None and classes:
        position = table.column_names.index(label)
        features[position] = FeatureSpec(name=label, kind="int64", minimum=0, maximum=len(classes) - 1)
    entries = [Entry(f"{row:012d}", labels[row]) for row in range(table.num_rows)]
    if not entries:
        raise CliError(f"{path}: the table has no rows.")
    splits = split_off(entries, validation_share, seed=seed)
    columns = {name: table.column(name) for name in table.column_names}
    return Table(
        splits=splits,
        classes=classes,
        features=tuple(features),
        columns=columns,
        label=label if classes else None,
        path=path,
        notes=(
            *note_of_draw(splits, validation_share, "their rows' numbers"),
            f"Features: {_first([_described(feature) for feature in features])}.",
        ),
        stamp=f"{facts.st_size} {facts.st_mtime_ns}",
    )


def _first(names: Sequence[str]) -> str:
    """Join the first names: a table may have thousands of columns."""
    more = f" and {len(names) - _MAX_SHOWN:,} more" if len(names) > _MAX_SHOWN else ""
    return ", ".join(map(shown, names[:_MAX_SHOWN])) + more


def _described(feature: FeatureSpec) -> str:
    return f"{feature.name} {feature.encoding or feature.kind}{'' if feature.shape == () else ' list'}"


def _labels(path: Path, table: Any, label: str | None) -> tuple[list[int], tuple[str, ...]]:
    """Return each row's label, for balancing, and the names of the classes where labels are texts."""
    if label is None:
        return [0] * table.num_rows, ()
    values = table.column(label).to_pylist()
    if any(value is None for value in values):
        row = values.index(None)
        raise CliError(f"{path}: row {row} (the first is 0) has no label in column {label}.")
    if all(isinstance(value, int) for value in values):
        return values, ()
    if not all(isinstance(value, str) for value in values):
        raise CliError(f"{path}: the labels in column {label} are neither whole numbers nor texts.")
    classes = tuple(sorted(set(values)))
    if blank := [name for name in classes if not name.strip()]:
        row = min(map(values.index, blank))
        raise CliError(f"{path}: row {row} (the first is 0) has no label in column {label}.")
    numbers = {name: number for number, name in enumerate(classes)}
    return [numbers[value] for value in values], classes


def _feature(path: Path, name: str, column_type: Any) -> FeatureSpec:
    import pyarrow as pa

    shape: tuple[int | None, ...] = ()
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_list_view, pa.types.is_large_list_view)
    if pa.types.is_fixed_size_list(column_type):
        shape, column_type = (column_type.list_size,), column_type.value_type
    elif any(holds(column_type) for holds in lists):
        shape, column_type = (None,), column_type.value_type
    bytes_types = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, _is_text)
    kinds: tuple[tuple[FeatureKind, bool], ...] = (
        ("int64", pa.types.is_integer(column_type) or pa.types.is_boolean(column_type)),
        ("float", pa.types.is_floating(column_type)),
        ("bytes", any(holds(column_type) for holds in bytes_types)),
    )
    kind = next((kind for kind, holds in kinds if holds), None)
    if kind is None:
        raise CliError(
            f"{path}: column {name} has type {column_type}, which no feature has. Use numbers, texts or bytes."
        )
    return FeatureSpec(name=name, kind=kind, shape=shape, encoding="text" if _is_text(column_type) else None)


def _is_text(column_type: Any) -> bool:
    import pyarrow as pa

    return column_type in (pa.string(), pa.large_string(), pa.string_view())


def map_rows(path: Path, rows_file: Path) -> Any:
    """Copy a Parquet or CSV file into ``rows_file``; return it mapped as a pyarrow Table. Raises CliError."""
    import pyarrow as pa

    is_parquet = path.suffix.lower() == ".parquet"
    try:
        rows_file.parent.mkdir(parents=True, exist_ok=True)
        (_copy_parquet if is_parquet else _copy_csv)(path, rows_file)
        return pa.ipc.open_file(pa.memory_map(str(rows_file))).read_all()
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in DISK_FULL:
            raise CliError(
                f"{rows_file.parent}: has no space for a copy of the values of {path}: {error}."
            ) from error
        raise CliError(f"{path}: cannot be read as {'Parquet' if is_parquet else 'CSV'}: {error}") from error


def _copy_parquet(path: Path, rows_file: Path) -> None:
    from pyarrow import parquet

    with parquet.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
        groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
        row_bytes = max((group.total_byte_size // max(1, group.num_rows) for group in groups), default=1)
        num_rows = max(1, min(BATCH_BYTES // max(1, row_bytes), MAX_BATCH_ROWS))
        _write(file.iter_batches(num_rows), file.schema_arrow, rows_file)


def _copy_csv(path: Path, rows_file: Path) -> None:
    """Read with the types and the block size that suit the first rows.

    If a later row does not fit, start again with a wider type or a larger block.
    """
    import pyarrow as pa
    from pyarrow import csv

    types: dict[str, Any] = {}
    block_bytes = CSV_BLOCK_BYTES
    wider = {pa.null(): pa.int64(), pa.int64(): pa.float64()}
    while True:
        convert = csv.ConvertOptions(column_types=types)
        schema = pa.schema([])
        try:
            with csv.open_csv(path, csv.ReadOptions(block_size=block_bytes), convert_options=convert) as reader:
                schema = reader.schema
                _write(reader, schema, rows_file)
                return
        except pa.ArrowInvalid as error:
            match = _CSV_COLUMN.search(str(error))
            field = schema.field(int(match[1])) if match and len(schema) else None
            if "straddl" in str(error) and block_bytes < MAX_CSV_BLOCK_BYTES:
                block_bytes *= 8
            elif field is not None and field.type != pa.string():
                types[field.name] = wider.get(field.type, pa.string())
            else:
                raise


def _write(batches: Iterator[Any], schema: Any, rows_file: Path) -> None:
    """Write batches; dictionary columns, such as pandas' categories, become their values."""
    import pyarrow as pa

    plain = pa.schema(
        [field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field for field in schema]
    )
    with pa.OSFile(str(rows_file), "wb") as file, pa.ipc.new_file(file, plain) as writer:
        for batch in batches:
            columns = [c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in batch.columns]
            writer.write_batch(pa.record_batch(columns, schema=plain))
