"""The board of single flight: one row beside the runs, replaced under its ETag."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from typing import Any

from function_app.adapters.tables.client import Change, Row, Tables, new_writer, tries
from function_app.adapters.tables.rows import long_text, read_long_text
from function_app.domain.errors import LedgerConflictError
from function_app.domain.run_queue import Dropped, Flight, FlightBoard

_PARTITION = "runs"
_KEY = "board"


class TableFlights:
    """Row ``board``: JSON in as many columns as it takes; 1,000 pipelines fit into its 1 MiB."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def flights(self) -> FlightBoard:
        """See Ledger. One operation."""
        return _board(self._tables.get("runs", _PARTITION, _KEY))

    def change_flights(self, change: Callable[[FlightBoard], FlightBoard]) -> tuple[FlightBoard, FlightBoard]:
        """See Ledger. One operation, and one more where something changes."""
        for _ in tries("the board of flights"):
            row = self._tables.get("runs", _PARTITION, _KEY)
            before = _board(row)
            after = change(before)
            if after == before or self._board_written(after, row):
                break
        return before, after

    def _board_written(self, board: FlightBoard, row: Row | None) -> bool:
        change = Change(key=_KEY, columns=_columns(board), etag=row.etag if row else None)
        if row is None:
            return self._tables.create("runs", _PARTITION, [change], new_writer())
        try:
            self._tables.replace("runs", _PARTITION, [change], new_writer())
        except LedgerConflictError:
            return False
        return True


def _columns(board: FlightBoard) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for name in ("going", "armed", "dropped"):
        entries = [{k: _plain(v) for k, v in asdict(entry).items()} for entry in getattr(board, name)]
        columns |= long_text(name, json.dumps(entries))
    return columns


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _board(row: Row | None) -> FlightBoard:
    if row is None:
        return FlightBoard()
    going, armed, dropped = (json.loads(read_long_text(row.columns, name)) for name in ("going", "armed", "dropped"))
    return FlightBoard(
        going=tuple(map(_flight, going)),
        armed=tuple(map(_flight, armed)),
        dropped=tuple(Dropped(**entry) for entry in dropped),
    )


def _flight(members: dict[str, Any]) -> Flight:
    times = {name: datetime.fromisoformat(members[name]) for name in ("asked_at", "waiting_since")}
    return Flight(**{**members, **times})
