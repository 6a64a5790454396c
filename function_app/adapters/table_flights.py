"""The board of single flight: one row beside the runs, replaced under its ETag."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from function_app.adapters.table_rows import long_text, read_long_text
from function_app.adapters.tables import Change, Tables, new_writer
from function_app.errors import LedgerConflictError
from function_app.flights import Dropped, Flight, FlightBoard

_PARTITION = "runs"
_KEY = "board"


class TableFlights:
    """Row ``board``: JSON in as many columns as it takes; 1,000 pipelines fit into its 1 MiB."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def flights(self) -> FlightBoard:
        """See Ledger. One operation."""
        row = self._tables.get("runs", _PARTITION, _KEY)
        return FlightBoard() if row is None else _board(row.columns, row.writer)

    def save_flights(self, board: FlightBoard) -> FlightBoard:
        """See Ledger. Two operations."""
        row, writer = self._tables.get("runs", _PARTITION, _KEY), new_writer()
        if (row.writer if row else "") != board.revision:
            raise LedgerConflictError("the board of flights was changed: read it again")
        change = Change(key=_KEY, columns=_columns(board), etag=row.etag if row else None)
        if row is not None:
            self._tables.replace("runs", _PARTITION, [change], writer)
        elif not self._tables.create("runs", _PARTITION, [change], writer):
            raise LedgerConflictError("the board of flights was written by somebody else: read it again")
        return replace(board, revision=writer)


def _columns(board: FlightBoard) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for name in ("going", "armed", "dropped"):
        entries = [{k: _plain(v) for k, v in asdict(entry).items()} for entry in getattr(board, name)]
        columns |= long_text(name, json.dumps(entries))
    return columns


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _board(columns: Mapping[str, Any], writer: str) -> FlightBoard:
    going, armed, dropped = (json.loads(read_long_text(columns, name)) for name in ("going", "armed", "dropped"))
    return FlightBoard(
        going=tuple(map(_flight, going)),
        armed=tuple(map(_flight, armed)),
        dropped=tuple(Dropped(**entry) for entry in dropped),
        revision=writer,
    )


def _flight(members: dict[str, Any]) -> Flight:
    times = {name: datetime.fromisoformat(members[name]) for name in ("asked_at", "waiting_since")}
    return Flight(**{**members, **times})
