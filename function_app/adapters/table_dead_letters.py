"""The table of dead letters: one partition, for there should be few."""

from __future__ import annotations

from dataclasses import replace

from function_app.adapters.ledger_bounds import bounded_dead_letter
from function_app.adapters.table_keys import escaped
from function_app.adapters.table_rows import from_columns, to_columns
from function_app.adapters.tables import Change, Row, Tables, new_writer
from function_app.dead_letters import DeadLetter, dead_letter_order
from function_app.errors import LedgerConflictError

_PARTITION = "dead"


class TableDeadLetters:
    """Rows ``id``."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def add_dead_letter(self, letter: DeadLetter) -> bool:
        """See DeadLetters."""
        letter = bounded_dead_letter(letter)
        change = Change(key=escaped(letter.dead_letter_id), columns=to_columns(letter))
        return self._tables.create("deadletters", _PARTITION, [change], new_writer())

    def dead_letter(self, dead_letter_id: str) -> DeadLetter | None:
        """See DeadLetters. One operation."""
        row = self._tables.get("deadletters", _PARTITION, escaped(dead_letter_id))
        return None if row is None else _letter(row)

    def save_dead_letter(self, letter: DeadLetter) -> DeadLetter:
        """See DeadLetters. Two operations."""
        letter = bounded_dead_letter(letter)
        row = self._tables.get("deadletters", _PARTITION, escaped(letter.dead_letter_id))
        if row is None or row.writer != letter.revision:
            raise LedgerConflictError(
                f"dead letter {letter.dead_letter_id} was changed, or is not there: read it again"
            )
        writer = new_writer()
        change = Change(key=row.key, columns=to_columns(letter), etag=row.etag)
        self._tables.replace("deadletters", _PARTITION, [change], writer)
        return replace(letter, revision=writer)

    def dead_letters(self, *, limit: int = 100) -> list[DeadLetter]:
        """See DeadLetters. Reads all of them: their order is not their keys'."""
        rows = self._tables.scan("deadletters", "PartitionKey eq @partition", partition=_PARTITION)
        return sorted(map(_letter, rows), key=dead_letter_order)[:limit]


def _letter(row: Row) -> DeadLetter:
    return from_columns(DeadLetter, row.columns, revision=row.writer)
