"""The ledger in Azure Table storage: seven tables, one class for each."""

from __future__ import annotations

from function_app.adapters.connections import StorageConnection
from function_app.adapters.tables.client import Tables
from function_app.adapters.tables.history import TableHistory, TableNotes
from function_app.adapters.tables.outbox import TableDeadLetters, TableOutbox
from function_app.adapters.tables.runs import TableRunQueue, TableRuns
from function_app.adapters.tables.versions import TableShards, TableVersions

TABLE_PREFIX = "landfall"


class TableLedger(
    TableShards, TableVersions, TableRuns, TableRunQueue, TableOutbox, TableHistory, TableDeadLetters, TableNotes
):
    """Implements Ledger. The SDK is imported and the account called only at the first use."""

    def __init__(self, connection: StorageConnection, *, prefix: str = TABLE_PREFIX) -> None:
        super().__init__(Tables(connection, prefix))
