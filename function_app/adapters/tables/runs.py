"""The table of runs and the run queue: one partition, so that a run and the rows that lead to it change together."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from function_app.adapters.tables.client import Change, Row, Tables, new_writer, tries
from function_app.adapters.tables.row_limits import bounded_run
from function_app.adapters.tables.rows import (
    after,
    descending,
    escaped,
    from_columns,
    joined,
    long_text,
    read_long_text,
    to_columns,
)
from function_app.domain.errors import LedgerConflictError
from function_app.domain.records import RunRecord, is_unfinished
from function_app.domain.run_queue import Dropped, QueueEntry, RunQueue
from function_app.domain.run_states import RunState, check_transition

_PARTITION = "runs"
_IN_RANGE = f"PartitionKey eq '{_PARTITION}' and RowKey ge @low and RowKey lt @high"
_MAX_RUN_ID_CHARS = 255
_QUEUE_KEY = "board"
_QUEUE_COLUMNS = {"running": "going", "queued": "armed", "dropped": "dropped"}
"""Field → the column's name in stored rows."""


class TableRuns:
    """Rows ``run|time|run_id`` hold runs, the newest first; ``id|run_id`` and ``open|run_id`` lead to them."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def add_run(self, run: RunRecord) -> bool:
        """See Ledger."""
        return self._tables.create("runs", _PARTITION, _new_rows(bounded_run(run)), new_writer())

    def run(self, run_id: str) -> RunRecord | None:
        """See Ledger. Two operations."""
        pointer = self._tables.get("runs", _PARTITION, _id_key("id", run_id))
        return None if pointer is None else self._followed(pointer)

    def save_run(self, run: RunRecord) -> RunRecord:
        """See Ledger. Two operations."""
        run, writer = bounded_run(run), new_writer()
        self._tables.replace("runs", _PARTITION, self._changes(run), writer)
        return replace(run, revision=writer)

    def add_attempt(self, run: RunRecord, following: RunRecord) -> tuple[RunRecord, RunRecord]:
        """See Ledger. Two operations: all rows change in one transaction."""
        run, following, writer = bounded_run(run), bounded_run(following), new_writer()
        changes = [*self._changes(run), *_new_rows(following)]
        self._tables.replace("runs", _PARTITION, changes, writer)
        return replace(run, revision=writer), replace(following, revision=writer)

    def _changes(self, run: RunRecord) -> list[Change]:
        """Return the changes for saving a run, its own row first."""
        row = self._tables.get("runs", _PARTITION, _run_key(run))
        if row is None or row.writer != run.revision:
            raise LedgerConflictError(f"run {run.run_id} was changed, or is not there: read it again")
        stored = _run(row)
        check_transition(run.run_id, stored.state, run.state)
        return [Change(key=row.key, columns=to_columns(run), etag=row.etag), *_open_changes(stored, run)]

    def unfinished_runs(self) -> Iterator[RunRecord]:
        """See Ledger. One operation, and one for each unfinished run."""
        for pointer in self._tables.scan("runs", _IN_RANGE, low="open|", high=after("open")):
            run = self._followed(pointer)
            if run is not None and is_unfinished(run):
                yield run

    def runs(
        self,
        *,
        limit: int = 100,
        dataset: str | None = None,
        state: RunState | None = None,
        older_than: RunRecord | None = None,
    ) -> list[RunRecord]:
        """See Ledger."""
        wanted = {name: value for name, value in (("dataset", dataset), ("state", state)) if value is not None}
        condition = " and ".join([_IN_RANGE, *(f"{name} eq @{name}" for name in wanted)])
        # no character of an id comes before "!", so no key sorts between
        low = "run|" if older_than is None else f"{_run_key(older_than)}!"
        rows = self._tables.scan("runs", condition, limit, low=low, high=after("run"), **wanted)
        return [_run(row) for row in rows]

    def _followed(self, pointer: Row) -> RunRecord | None:
        row = self._tables.get("runs", _PARTITION, pointer.columns["row"])
        return None if row is None else _run(row)


def _new_rows(run: RunRecord) -> list[Change]:
    pointer = {"row": _run_key(run)}
    rows = [
        Change(key=_id_key("id", run.run_id), columns=pointer),
        Change(key=_run_key(run), columns=to_columns(run)),
    ]
    return [*rows, Change(key=_id_key("open", run.run_id), columns=pointer)] if is_unfinished(run) else rows


def _open_changes(stored: RunRecord, run: RunRecord) -> list[Change]:
    """Return the change of the row that lists the run as unfinished."""
    if is_unfinished(stored) == is_unfinished(run):
        return []
    columns = {"row": _run_key(run)} if is_unfinished(run) else None
    return [Change(key=_id_key("open", run.run_id), columns=columns)]


def _run_key(run: RunRecord) -> str:
    return joined("run", descending(run.created_at), escaped(run.run_id, max_chars=_MAX_RUN_ID_CHARS))


def _id_key(kind: str, run_id: str) -> str:
    return joined(kind, escaped(run_id, max_chars=_MAX_RUN_ID_CHARS))


def _run(row: Row) -> RunRecord:
    return from_columns(RunRecord, row.columns, revision=row.writer)


class TableRunQueue:
    """Row ``board``, replaced under its ETag: JSON in as many columns as needed, see `run_queue.MAX_ROW_CHARS`."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def run_queue(self) -> RunQueue:
        """See Ledger. One operation."""
        return _queue(self._tables.get("runs", _PARTITION, _QUEUE_KEY))

    def change_run_queue(self, change: Callable[[RunQueue], RunQueue]) -> tuple[RunQueue, RunQueue]:
        """See Ledger. One operation, and one more where something changes."""
        for _ in tries("the run queue"):
            row = self._tables.get("runs", _PARTITION, _QUEUE_KEY)
            before = _queue(row)
            after = change(before)
            if after == before or self._queue_written(after, row):
                break
        return before, after

    def _queue_written(self, queue: RunQueue, row: Row | None) -> bool:
        change = Change(key=_QUEUE_KEY, columns=_queue_columns(queue), etag=row.etag if row else None)
        if row is None:
            return self._tables.create("runs", _PARTITION, [change], new_writer())
        try:
            self._tables.replace("runs", _PARTITION, [change], new_writer())
        except LedgerConflictError:
            return False
        return True


def _queue_columns(queue: RunQueue) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for field, column in _QUEUE_COLUMNS.items():
        entries = [{k: _plain(v) for k, v in asdict(entry).items()} for entry in getattr(queue, field)]
        columns |= long_text(column, json.dumps(entries))
    return columns


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _queue(row: Row | None) -> RunQueue:
    if row is None:
        return RunQueue()
    found = {field: json.loads(read_long_text(row.columns, column)) for field, column in _QUEUE_COLUMNS.items()}
    return RunQueue(
        running=tuple(map(_entry, found["running"])),
        queued=tuple(map(_entry, found["queued"])),
        dropped=tuple(Dropped(**entry) for entry in found["dropped"]),
    )


def _entry(members: dict[str, Any]) -> QueueEntry:
    times = {name: datetime.fromisoformat(members[name]) for name in ("asked_at", "waiting_since")}
    return QueueEntry(**{**members, **times})
