"""The table operations of the ledger: read a row, scan keys, commit changes of one partition."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from function_app.adapters.connections import StorageConnection
from function_app.adapters.storage_errors import storage_errors
from function_app.domain.errors import LedgerConflictError

if TYPE_CHECKING:
    from azure.data.tables import TableClient, TableEntity

Table = Literal["shards", "versions", "runs", "outbox", "decisions", "deadletters", "notes"]

MAX_TRIES = 24
"""Tries of one compare-and-swap, enough for sixty concurrent writers of one counter. The queue delivers again."""
FIRST_BACKOFF_S = 0.01
MAX_BACKOFF_S = 1.0

_CONFLICT = frozenset({404, 409, 412})
"""404: a row to change does not exist; 409: a row to create exists; 412: a row was changed in the meantime."""

_REPEATED = frozenset({"POST"})
"""The method of writes, which the SDK does not repeat by default; ``new_writer`` makes repetitions safe."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A stored row."""

    key: str
    columns: Mapping[str, Any]
    etag: str

    @property
    def writer(self) -> str:
        """The mark of the call that wrote the row, see ``new_writer``."""
        return str(self.columns.get("writer", ""))


@dataclass(frozen=True, kw_only=True)
class Change:
    """One row of a transaction: created if ``etag`` is None, deleted if it has no columns, otherwise replaced."""

    key: str
    columns: Mapping[str, Any] | None
    etag: str | None = None


def new_writer() -> str:
    """Return a mark for the rows of one call. It is also the record's revision.

    If a response was lost and the SDK has repeated the request, the repetition finds the row of the first request and
    looks like a conflict. The mark distinguishes it from a real conflict.
    """
    return uuid.uuid4().hex


def tries(what: str, *, sleep: Callable[[float], None] = time.sleep) -> Iterator[int]:
    """Count the tries of a compare-and-swap, with random pauses. Raises LedgerConflictError after the last try."""
    for number in range(MAX_TRIES):
        if number:
            longest_s = min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2**number)
            sleep(random.uniform(0, longest_s))  # noqa: S311 (spreads writers; protects nothing)
        yield number
    raise LedgerConflictError(f"{what}: other writers kept winning, {MAX_TRIES} times; try again later")


class Tables:
    """The ledger's tables in one account, which are created at the first use."""

    def __init__(self, connection: StorageConnection, prefix: str) -> None:
        self._connection = connection
        self._prefix = prefix
        self._clients: dict[Table, TableClient] = {}
        self._lock = threading.Lock()

    def get(self, table: Table, partition: str, key: str) -> Row | None:
        """Return one row. One operation."""
        from azure.core.exceptions import ResourceNotFoundError

        with storage_errors(f"read {key} of table {self._prefix}{table}"):
            client = self._client(table)
            try:
                return _row(client.get_entity(partition, key))
            except ResourceNotFoundError:
                return None

    def scan(
        self,
        table: Table,
        condition: str,
        /,
        limit: int | None = None,
        columns: Sequence[str] | None = None,
        **parameters: str,
    ) -> Iterator[Row]:
        """Yield the rows that satisfy an OData condition, in key order. One operation per 1,000 rows.

        ``columns`` are the columns to read, by default all.
        """
        with storage_errors(f"query table {self._prefix}{table}"):
            pages = self._client(table).query_entities(
                condition,
                parameters=parameters,
                results_per_page=min(limit or 1000, 1000),
                select=None if columns is None else list(columns),
            )
            for number, entity in enumerate(pages, start=1):
                yield _row(entity)
                if number == limit:
                    return

    def commit(self, table: Table, partition: str, changes: list[Change]) -> None:
        """Make either all changes or none, in one operation.

        Raises LedgerConflictError if a row to create exists, or a row to change was changed since it was read.
        """
        from azure.core.exceptions import HttpResponseError

        with storage_errors(f"write {changes[0].key} to table {self._prefix}{table}"):
            client = self._client(table)
            try:
                _send(client, [_operation(partition, change) for change in changes])
            except HttpResponseError as error:
                if error.status_code not in _CONFLICT:
                    raise
                raise LedgerConflictError(f"{changes[0].key} of table {self._prefix}{table} was changed") from error

    def create(self, table: Table, partition: str, changes: list[Change], writer: str) -> bool:
        """Commit new rows; return False if another call had already written the first of them."""
        try:
            self.commit(table, partition, [_marked(change, writer) for change in changes])
        except LedgerConflictError:
            stored = self.get(table, partition, changes[0].key)
            return stored is not None and stored.writer == writer
        return True

    def replace(self, table: Table, partition: str, changes: list[Change], writer: str) -> None:
        """Commit changed rows. Raises LedgerConflictError if another call changed the first of them."""
        try:
            self.commit(table, partition, [_marked(change, writer) for change in changes])
        except LedgerConflictError:
            stored = self.get(table, partition, changes[0].key)
            if stored is None or stored.writer != writer:
                raise

    def _client(self, table: Table) -> TableClient:
        with self._lock:
            if table not in self._clients:
                service = self._connection.table_service
                self._clients[table] = service.create_table_if_not_exists(self._prefix + table)
            return self._clients[table]


def _marked(change: Change, writer: str) -> Change:
    if change.columns is None:
        return change
    return Change(key=change.key, columns={**change.columns, "writer": writer}, etag=change.etag)


def _send(client: TableClient, operations: list[tuple[str, dict[str, Any], dict[str, Any]]]) -> None:
    """Send a transaction. A single new row is sent as a plain insert, which costs half."""
    if len(operations) == 1 and operations[0][0] == "create":
        client.create_entity(operations[0][1], response_preference="return-no-content", retry_on_methods=_REPEATED)
    else:
        client.submit_transaction(operations, retry_on_methods=_REPEATED)


def _operation(partition: str, change: Change) -> tuple[str, dict[str, Any], dict[str, Any]]:
    from azure.core import MatchConditions
    from azure.data.tables import UpdateMode

    keys = {"PartitionKey": partition, "RowKey": change.key}
    if change.columns is None:
        return "delete", keys, {}
    entity = {**change.columns, **keys}
    if change.etag is None:
        return "create", entity, {}
    unchanged = {"etag": change.etag, "match_condition": MatchConditions.IfNotModified}
    return "update", entity, {"mode": UpdateMode.REPLACE, **unchanged}


def _row(entity: TableEntity) -> Row:
    return Row(key=entity["RowKey"], columns=entity, etag=entity.metadata["etag"] or "")
