"""The tables of the history, with a partition per subject ordered by time, and of counters and marks."""

from __future__ import annotations

import time

from function_app.adapters.tables.client import Change, Row, Tables, new_writer, tries
from function_app.adapters.tables.row_limits import bounded_history_entry
from function_app.adapters.tables.rows import ascending, escaped, from_columns, joined, to_columns
from function_app.domain.errors import LedgerConflictError
from function_app.domain.records import HistoryEntry


class TableHistory:
    """Partition ``subject``; rows ``time|order|writer``."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def add_history_entry(self, entry: HistoryEntry) -> None:
        """See Ledger."""
        entry, writer = bounded_history_entry(entry), new_writer()
        # The second clock orders entries with the same time.
        key = joined(ascending(entry.at), f"{time.time_ns():020d}", writer)
        self._tables.create("decisions", _partition(entry.subject), [_change(key, entry)], writer)

    def history(self, subject: str) -> list[HistoryEntry]:
        """See Ledger."""
        rows = self._tables.scan("decisions", "PartitionKey eq @partition", partition=_partition(subject))
        return [from_columns(HistoryEntry, row.columns) for row in rows]

    def history_below(self, prefix: str, *, limit: int) -> list[HistoryEntry]:
        """See Ledger. One operation for every 1,000 entries; ``limit`` drops the alphabetically last subjects."""
        low = joined("subject", escaped(prefix))
        condition = "PartitionKey ge @low and PartitionKey lt @high"
        rows = self._tables.scan("decisions", condition, limit, low=low, high=low[:-1] + chr(ord(low[-1]) + 1))
        entries = [from_columns(HistoryEntry, row.columns) for row in rows]
        return sorted(entries, key=lambda entry: entry.at)


def _partition(subject: str) -> str:
    return joined("subject", escaped(subject))


def _change(key: str, entry: HistoryEntry) -> Change:
    return Change(key=key, columns=to_columns(entry))


_MARK = "mark"


class TableNotes:
    """Partitions ``count|name`` with one row per key, and ``mark|name`` with a single row."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def count(self, name: str, key: str) -> None:
        """See Notes. Two operations without concurrent writers."""
        partition, row_key = joined("count", escaped(name)), escaped(key)
        for _ in tries(f"counter {name} {key}"):
            row = self._tables.get("notes", partition, row_key)
            number = 1 if row is None else int(row.columns["number"].value) + 1
            if self._noted(partition, row, row_key, {"key": key, "number": (number, "Edm.Int64")}):
                return

    def mark(self, name: str) -> str | None:
        """See Notes. One operation."""
        row = self._tables.get("notes", joined(_MARK, escaped(name)), _MARK)
        return None if row is None else str(row.columns["text"])

    def set_mark(self, name: str, text: str) -> None:
        """See Notes. Two operations."""
        partition = joined(_MARK, escaped(name))
        for _ in tries(f"mark {name}"):
            row = self._tables.get("notes", partition, _MARK)
            if self._noted(partition, row, _MARK, {"text": text}):
                return

    def change_mark(self, name: str, before: str | None, after: str) -> bool:
        """See Notes. Two operations."""
        partition = joined(_MARK, escaped(name))
        row = self._tables.get("notes", partition, _MARK)
        if before != (None if row is None else str(row.columns["text"])):
            return False
        return self._noted(partition, row, _MARK, {"text": after})

    def _noted(self, partition: str, row: Row | None, key: str, columns: dict[str, object]) -> bool:
        """Create or replace a row; return False if another writer was first."""
        writer = new_writer()
        change = Change(key=key, columns=columns, etag=None if row is None else row.etag)
        if row is None:
            return self._tables.create("notes", partition, [change], writer)
        try:
            self._tables.replace("notes", partition, [change], writer)
        except LedgerConflictError:
            return False
        return True
