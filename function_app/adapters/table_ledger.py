"""The ledger in Azure Table storage: seven tables, one class for each."""

from __future__ import annotations

from function_app.adapters.connections import StorageConnection
from function_app.adapters.table_dead_letters import TableDeadLetters
from function_app.adapters.table_flights import TableFlights
from function_app.adapters.table_notes import TableNotes
from function_app.adapters.table_outbox import TableOutbox
from function_app.adapters.table_runs import TableRuns
from function_app.adapters.table_shards import TableShards
from function_app.adapters.table_story import TableStory
from function_app.adapters.table_versions import TableVersions
from function_app.adapters.tables import Tables

TABLE_PREFIX = "landfall"


class TableLedger(
    TableShards, TableVersions, TableRuns, TableFlights, TableOutbox, TableStory, TableDeadLetters, TableNotes
):
    """Implements Ledger. Nothing is asked of the account, and no SDK imported, before the first call."""

    def __init__(self, connection: StorageConnection, *, prefix: str = TABLE_PREFIX) -> None:
        super().__init__(Tables(connection, prefix))
