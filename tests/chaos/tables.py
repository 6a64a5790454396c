"""Delta tables of a storm: files with names of their own, and commits that `deltalake` writes."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

COLUMNS = pa.schema([("label", pa.int64()), ("number", pa.int64())])
SCHEMA = Schema.from_arrow(COLUMNS.append(pa.field("split", pa.string())))


def table_file(labels: Sequence[int], number: int) -> bytes:
    """Return a Parquet file with these labels."""
    buffer = io.BytesIO()
    pq.write_table(pa.table({"label": labels, "number": [number] * len(labels)}, schema=COLUMNS), buffer)
    return buffer.getvalue()


def name_in_table(name: str, content: bytes) -> str:
    """Return the name of a file with this content: tables never write another content under the same name."""
    return f"{name.removesuffix('.parquet')}-{hashlib.sha256(content).hexdigest()[:12]}.parquet"


class TableWriter:
    """Writes the log of one table."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sizes: dict[str, int] = {}
        """The files of the last commit."""

    def __call__(self, files: Mapping[str, bytes], records: int) -> tuple[str, bytes] | None:
        """Commit that the table has these files; return name and content of the commit, None where it has them."""
        sizes = {name: len(content) for name, content in files.items()}
        if sizes == self._sizes:
            return None
        added = [_added(name, size, records) for name, size in sizes.items() if name not in self._sizes]
        if not self._sizes:
            create_table_with_add_actions(str(self._folder), SCHEMA, added, partition_by=["split"])
        else:
            removed = [_removed(name, size) for name, size in self._sizes.items() if name not in sizes]
            table = DeltaTable(self._folder)
            table.create_write_transaction([*added, *removed], "append", SCHEMA, partition_by=["split"])
        self._sizes = sizes
        name = f"_delta_log/{DeltaTable(self._folder).version():020}.json"
        return name, (self._folder / name).read_bytes()


def _added(name: str, size: int, records: int) -> AddAction:
    return AddAction(name, size, _partition(name), 0, data_change=True, stats=json.dumps({"numRecords": records}))


def _removed(name: str, size: int) -> RemoveAction:
    return RemoveAction(name, True, 0, size, _partition(name))  # noqa: FBT003 - it changes the data


def _partition(name: str) -> dict[str, str | None]:
    """Return the values of Hive partitions in a path."""
    pairs = (folder.partition("=") for folder in name.split("/")[:-1])
    return {key: value for key, _, value in pairs}
