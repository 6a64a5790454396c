"""Tables read a batch at a time into a file that is mapped into memory: rows can then be had in any order.

A table may be larger than the memory; the file takes the room of its values, uncompressed, beside the shards.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cli.errors import FULL, CliError

BATCH_BYTES = 8 << 20
MAX_BATCH_ROWS = 1 << 16
CSV_BLOCK_BYTES = 1 << 20
"""pyarrow reads some forty of them ahead."""
MAX_CSV_BLOCK_BYTES = 64 << 20
"""A row must fit into a block; only a table with longer ones is read in larger blocks."""
_CSV_COLUMN = re.compile(r"In CSV column #(\d+)")


def map_rows(path: Path, rows_file: Path) -> Any:
    """Return a pyarrow Table of what a Parquet or CSV file holds, mapped from ``rows_file``. Raises CliError."""
    import pyarrow as pa

    is_parquet = path.suffix.lower() == ".parquet"
    try:
        rows_file.parent.mkdir(parents=True, exist_ok=True)
        (_copy_parquet if is_parquet else _copy_csv)(path, rows_file)
        return pa.ipc.open_file(pa.memory_map(str(rows_file))).read_all()
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in FULL:
            raise CliError(f"{rows_file.parent}: has no room for a copy of {path}'s values: {error}.") from error
        raise CliError(f"{path}: cannot be read as {'Parquet' if is_parquet else 'CSV'}: {error}") from error


def _copy_parquet(path: Path, rows_file: Path) -> None:
    from pyarrow import parquet

    with parquet.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
        groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
        row_bytes = max((group.total_byte_size // max(1, group.num_rows) for group in groups), default=1)
        num_rows = max(1, min(BATCH_BYTES // max(1, row_bytes), MAX_BATCH_ROWS))
        _write(file.iter_batches(num_rows), file.schema_arrow, rows_file)


def _copy_csv(path: Path, rows_file: Path) -> None:
    """Take columns' types and the size of a block from the first rows; begin again where later ones do not fit."""
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
    """Write batches, their dictionaries (as pandas' categories) resolved."""
    import pyarrow as pa

    plain = pa.schema(
        [field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field for field in schema]
    )
    with pa.OSFile(str(rows_file), "wb") as file, pa.ipc.new_file(file, plain) as writer:
        for batch in batches:
            columns = [c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in batch.columns]
            writer.write_batch(pa.record_batch(columns, schema=plain))
