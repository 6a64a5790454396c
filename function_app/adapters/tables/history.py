"""The table of decisions: each subject's story in a partition of its own, in the order of time."""

from __future__ import annotations

import time
from collections.abc import Mapping

from function_app.adapters.tables.bounds import bounded_decision
from function_app.adapters.tables.client import Change, Row, Tables, new_writer, tries
from function_app.adapters.tables.rows import ascending, escaped, from_columns, joined, to_columns
from function_app.domain.errors import LedgerConflictError
from function_app.domain.records import Decision


class TableStory:
    """Partition ``subject``; rows ``time|order|writer``."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def record_decision(self, decision: Decision) -> None:
        """See Ledger."""
        decision, writer = bounded_decision(decision), new_writer()
        # the second time only keeps two lines in order that bear the same one
        key = joined(ascending(decision.at), f"{time.time_ns():020d}", writer)
        self._tables.create("decisions", _partition(decision.subject), [_change(key, decision)], writer)

    def decisions(self, subject: str) -> list[Decision]:
        """See Ledger."""
        rows = self._tables.scan("decisions", "PartitionKey eq @partition", partition=_partition(subject))
        return [from_columns(Decision, row.columns) for row in rows]


def _partition(subject: str) -> str:
    return joined("subject", escaped(subject))


def _change(key: str, decision: Decision) -> Change:
    return Change(key=key, columns=to_columns(decision))


_MARK = "mark"


class TableNotes:
    """Partitions ``count|name`` with a row for each key, and ``mark|name`` with one row."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def count(self, name: str, key: str) -> None:
        """See Notes. Two operations where nobody interferes."""
        partition, row_key = joined("count", escaped(name)), escaped(key)
        for _ in tries(f"counter {name} {key}"):
            row = self._tables.get("notes", partition, row_key)
            number = 1 if row is None else _number(row) + 1
            if self._noted(partition, row, row_key, {"key": key, "number": (number, "Edm.Int64")}):
                return

    def counts(self, name: str) -> Mapping[str, int]:
        """See Notes."""
        rows = self._tables.scan("notes", "PartitionKey eq @partition", partition=joined("count", escaped(name)))
        return {row.columns["key"]: _number(row) for row in rows}

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

    def decisions_below(self, prefix: str, *, limit: int) -> list[Decision]:
        """See Notes. One operation for every 1,000 lines; where it is cut off, subjects late in the alphabet miss."""
        low = joined("subject", escaped(prefix))
        condition = "PartitionKey ge @low and PartitionKey lt @high"
        rows = self._tables.scan("decisions", condition, limit, low=low, high=low[:-1] + chr(ord(low[-1]) + 1))
        decisions = [from_columns(Decision, row.columns) for row in rows]
        return sorted(decisions, key=lambda decision: decision.at)

    def _noted(self, partition: str, row: Row | None, key: str, columns: dict[str, object]) -> bool:
        """Create or replace a row; False where somebody else was first."""
        writer = new_writer()
        change = Change(key=key, columns=columns, etag=None if row is None else row.etag)
        if row is None:
            return self._tables.create("notes", partition, [change], writer)
        try:
            self._tables.replace("notes", partition, [change], writer)
        except LedgerConflictError:
            return False
        return True


def _number(row: Row) -> int:
    return int(row.columns["number"].value)
