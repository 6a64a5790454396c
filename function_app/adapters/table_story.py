"""The table of decisions: each subject's story in a partition of its own, in the order of time."""

from __future__ import annotations

import time

from function_app.adapters.ledger_bounds import bounded_decision
from function_app.adapters.table_keys import ascending, escaped, joined
from function_app.adapters.table_rows import from_columns, to_columns
from function_app.adapters.tables import Change, Tables, new_writer
from function_app.ledger import Decision


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
