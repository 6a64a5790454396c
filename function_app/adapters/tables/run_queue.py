"""The run queue: one row beside the runs, replaced under its ETag."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from typing import Any

from function_app.adapters.tables.client import Change, Row, Tables, new_writer, tries
from function_app.adapters.tables.rows import long_text, read_long_text
from function_app.domain.errors import LedgerConflictError
from function_app.domain.run_queue import Dropped, QueueEntry, RunQueue

_PARTITION = "runs"
_KEY = "board"
_COLUMNS = {"running": "going", "queued": "armed", "dropped": "dropped"}
"""Field → the column's name in stored rows."""


class TableRunQueue:
    """Row ``board``: JSON in as many columns as it takes; 1,000 pipelines fit into its 1 MiB."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def run_queue(self) -> RunQueue:
        """See Ledger. One operation."""
        return _queue(self._tables.get("runs", _PARTITION, _KEY))

    def change_run_queue(self, change: Callable[[RunQueue], RunQueue]) -> tuple[RunQueue, RunQueue]:
        """See Ledger. One operation, and one more where something changes."""
        for _ in tries("the run queue"):
            row = self._tables.get("runs", _PARTITION, _KEY)
            before = _queue(row)
            after = change(before)
            if after == before or self._queue_written(after, row):
                break
        return before, after

    def _queue_written(self, queue: RunQueue, row: Row | None) -> bool:
        change = Change(key=_KEY, columns=_columns(queue), etag=row.etag if row else None)
        if row is None:
            return self._tables.create("runs", _PARTITION, [change], new_writer())
        try:
            self._tables.replace("runs", _PARTITION, [change], new_writer())
        except LedgerConflictError:
            return False
        return True


def _columns(queue: RunQueue) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for field, column in _COLUMNS.items():
        entries = [{k: _plain(v) for k, v in asdict(entry).items()} for entry in getattr(queue, field)]
        columns |= long_text(column, json.dumps(entries))
    return columns


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _queue(row: Row | None) -> RunQueue:
    if row is None:
        return RunQueue()
    found = {field: json.loads(read_long_text(row.columns, column)) for field, column in _COLUMNS.items()}
    return RunQueue(
        running=tuple(map(_entry, found["running"])),
        queued=tuple(map(_entry, found["queued"])),
        dropped=tuple(Dropped(**entry) for entry in found["dropped"]),
    )


def _entry(members: dict[str, Any]) -> QueueEntry:
    times = {name: datetime.fromisoformat(members[name]) for name in ("asked_at", "waiting_since")}
    return QueueEntry(**{**members, **times})
