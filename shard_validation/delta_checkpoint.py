"""Checkpoints of a Delta table: Parquet files with the state of the table when they were written.

Source of the format: delta-io/delta, PROTOCOL.md. They are decoded as shards are, in a process with bounded memory.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from shard_validation.content import HeldSource, SourceUnavailableError
from shard_validation.file_lists import MAX_FILES, FileListError
from shard_validation.parquet.decoder import DecoderLostError, give_back, take_decoder
from shared.safe_text import shown

MAX_ROWS = 10 * MAX_FILES
"""Rows of one file; besides the table's files, it lists those that were removed recently."""
MAX_SECONDS = 300.0
COLUMNS = (
    "add.path",
    "add.size",
    "add.stats",
    "add.stats_parsed.numRecords",
    "add.deletionVector.storageType",
    "protocol.minReaderVersion",
    "protocol.readerFeatures",
    "metaData.configuration",
    "sidecar.path",
)


def read_actions(name: str, content: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number of each row and its action, as a commit would state it. Raises FileListError.

    If the decoder is lost, the checkpoint is not read again here: the next event, or the sweep, does so.
    """
    source, latest, num_rows = HeldSource(name=name, content=content), time.monotonic() + MAX_SECONDS, 0

    def watch() -> None:
        if time.monotonic() > latest:
            raise FileListError(f"{name}: decoding it takes longer than {MAX_SECONDS:g} s; write a smaller one")

    try:
        decoder = take_decoder()
        try:
            decoder.ask({"table": {"size_bytes": len(content), "columns": COLUMNS}}, source.read, watch)
            while rows := decoder.ask({"rows": True}, source.read, watch)["rows"]:
                for row in rows:
                    num_rows += 1
                    if action := _action(row):
                        yield num_rows, action
                if num_rows > MAX_ROWS:
                    raise FileListError(f"{name}: more than {MAX_ROWS:,} rows")
        finally:
            give_back(decoder)
    except FileListError:
        raise
    except (
        DecoderLostError,
        SourceUnavailableError,
        RuntimeError,
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
    ) as error:
        raise FileListError(f"{name}: it cannot be decoded as a checkpoint: {shown(str(error)[:200])}") from error


def _action(row: dict[str, Any]) -> dict[str, Any]:
    """Return what a row states, in the form that it has in a commit."""
    action = {kind: members for kind, members in row.items() if members is not None}
    if (add := action.get("add")) is not None and add.get("stats") is None:
        add["stats"] = json.dumps(add.get("stats_parsed"))  # some writers state them as columns only
    if (metadata := action.get("metaData")) is not None:
        action["metaData"] = {"configuration": dict(metadata.get("configuration") or ())}
    return action
