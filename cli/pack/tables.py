"""Tables: a Parquet or CSV file, a column for each feature, a row for each example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cli.errors import CliError
from cli.pack.collection import Entry, split_off
from cli.pack.table_files import map_rows
from function_app.validation.example_message import Value
from shared.example_schema import FeatureKind, FeatureSpec


@dataclass(frozen=True, kw_only=True)
class Table:
    """The collection."""

    splits: Mapping[str, Sequence[Entry]]
    classes: tuple[str, ...]
    features: tuple[FeatureSpec, ...]
    columns: Mapping[str, Any] = field(repr=False)
    """pyarrow's columns by name, mapped from a file."""
    label: str | None

    def load(self, entry: Entry) -> Mapping[str, Value]:
        """See Collection."""
        row = int(entry.key)
        values = {name: column[row].as_py() for name, column in self.columns.items()}
        if absent := [name for name, value in values.items() if value is None or value == []]:
            raise ValueError(f"row {row}: every column should have a value, {absent} have none")
        if self.label is not None:
            values[self.label] = entry.label
        return values


def read_table(path: Path, rows_file: Path, *, label: str | None, validation_share: float, seed: int) -> Table:
    """Read a file by its suffix, its values through ``rows_file``, which must stay as long as the collection is used.

    Raises CliError naming the column that cannot be a feature.
    """
    table = map_rows(path, rows_file)
    if label is not None and label not in table.column_names:
        raise CliError(f"{path}: --label should be one of its columns {table.column_names}, was {label!r}.")
    features = [_feature(path, name, table.schema.field(name).type) for name in table.column_names]
    labels, classes = _labels(path, table, label)
    if label is not None and classes:
        position = table.column_names.index(label)
        features[position] = FeatureSpec(name=label, kind="int64", minimum=0, maximum=len(classes) - 1)
    entries = [Entry(f"{row:012d}", labels[row]) for row in range(table.num_rows)]
    if not entries:
        raise CliError(f"{path}: there should be at least one row, there is none.")
    train, validation = split_off(entries, validation_share, seed=f"{seed}")
    splits = {"train": train, **({"validation": validation} if validation_share else {})}
    columns = {name: table.column(name) for name in table.column_names}
    return Table(
        splits=splits, classes=classes, features=tuple(features), columns=columns, label=label if classes else None
    )


def _labels(path: Path, table: Any, label: str | None) -> tuple[list[int], tuple[str, ...]]:
    """Return each row's label for balancing, and the class names where the label is a text."""
    if label is None:
        return [0] * table.num_rows, ()
    values = table.column(label).to_pylist()
    if any(value is None for value in values):
        raise CliError(f"{path}: every row should have a label in {label}, row {values.index(None)} has none.")
    if all(isinstance(value, int) for value in values):
        return values, ()
    if not all(isinstance(value, str) for value in values):
        raise CliError(f"{path}: labels in {label} should be whole numbers or texts.")
    classes = tuple(sorted(set(values)))
    numbers = {name: number for number, name in enumerate(classes)}
    return [numbers[value] for value in values], classes


def _feature(path: Path, name: str, column_type: Any) -> FeatureSpec:
    import pyarrow as pa

    shape: tuple[int | None, ...] = ()
    if pa.types.is_fixed_size_list(column_type):
        shape, column_type = (column_type.list_size,), column_type.value_type
    elif pa.types.is_list(column_type) or pa.types.is_large_list(column_type):
        shape, column_type = (None,), column_type.value_type
    kinds: tuple[tuple[FeatureKind, bool], ...] = (
        ("int64", pa.types.is_integer(column_type) or pa.types.is_boolean(column_type)),
        ("float", pa.types.is_floating(column_type)),
        ("bytes", _is_text(column_type) or pa.types.is_binary(column_type) or pa.types.is_large_binary(column_type)),
    )
    kind = next((kind for kind, holds in kinds if holds), None)
    if kind is None:
        raise CliError(f"{path}: column {name} should hold numbers, texts or bytes, holds {column_type}.")
    return FeatureSpec(name=name, kind=kind, shape=shape, encoding="text" if _is_text(column_type) else None)


def _is_text(column_type: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(column_type) or pa.types.is_large_string(column_type))
