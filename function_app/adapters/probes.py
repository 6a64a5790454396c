"""Checks of storage with the identity and the connections of the app, for `landfall doctor`."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import get_args

from function_app.adapters.blobs import BlobDocumentStore
from function_app.adapters.connections import StorageConnection
from function_app.adapters.storage_errors import StorageRefusedError, storage_errors
from function_app.adapters.tables.client import Table, Tables
from function_app.domain.checks import Probe

MAX_BYTES = 1 << 10


def storage_probes(
    host: StorageConnection,
    data: StorageConnection,
    *,
    read: Iterable[tuple[StorageConnection, str]],
    written: Iterable[tuple[StorageConnection, str]],
    queues: Iterable[str],
    tables: str,
) -> Iterator[Probe]:
    """Yield the checks of containers that are read, and written, of queues, and of the tables with a prefix."""
    looks: list[tuple[StorageConnection, str, Callable[[StorageConnection, str], str]]]
    looks = [*((*each, _readable) for each in read), *((*each, _writable) for each in written)]
    for connection, name, look in looks:
        account = "data" if connection is data else "host"
        subject = f"container {name} of the {account} account"
        yield Probe(part="storage", subject=subject, look=partial(look, connection, name))
    for name in queues:
        yield Probe(part="queues", subject=f"queue {name}", look=partial(_queue, host, name))
    yield Probe(part="tables", subject="ledger", look=partial(_ledger, host, tables), fix="landfall reconcile")


def _readable(connection: StorageConnection, name: str) -> str:
    """Raise an error unless the container is there and its blobs may be read. Two operations."""
    from azure.core.exceptions import ResourceNotFoundError

    with storage_errors(f"look at container {name}"):
        container = connection.blob_service.get_container_client(name)
        try:
            container.get_container_properties()
        except ResourceNotFoundError as error:
            raise StorageRefusedError(f"it does not exist in account {container.account_name}") from error
        container.get_blob_client(_name()).exists()
    return "the app may read it"


def _writable(connection: StorageConnection, name: str) -> str:
    """Five operations, which leave nothing behind."""
    _readable(connection, name)
    documents, path = BlobDocumentStore(connection, name), _name()
    documents.write(path, b"{}")
    try:
        if documents.read(path, max_bytes=MAX_BYTES) != b"{}":
            raise StorageRefusedError(f"{path} was written and cannot be read back")
    finally:
        documents.delete(path)
    return "the app may read and write it"


def _name() -> str:
    """Return a name that no shard and no document has."""
    return f"landfall-doctor/{uuid.uuid4().hex}.json"


def _queue(connection: StorageConnection, name: str) -> str:
    """One operation."""
    from azure.core.exceptions import ResourceNotFoundError

    with storage_errors(f"look at queue {name}"):
        queue = connection.queue_service.get_queue_client(name)
        try:
            waiting = queue.get_queue_properties().approximate_message_count
        except ResourceNotFoundError as error:
            raise StorageRefusedError(
                f"it does not exist in account {queue.account_name}, so its events and messages are lost"
            ) from error
    return f"about {waiting} messages in it"


def _ledger(connection: StorageConnection, prefix: str) -> str:
    """Create the tables that do not exist, as their first use does. Raises StorageRefusedError for a lost one.

    The first upload writes to both the versions and the shards, so one without the other was deleted.
    """
    with storage_errors("list the ledger's tables"):
        there = {table.name for table in connection.table_service.list_tables(results_per_page=100)}
    wanted: tuple[Table, ...] = get_args(Table)
    missing = [table for table in wanted if prefix + table not in there]
    tables = Tables(connection, prefix)
    in_use = {table: any(tables.scan(table, "PartitionKey ge ''", limit=1)) for table in wanted}
    for lost, other in (("shards", "versions"), ("versions", "shards")):
        if lost in missing and in_use[other]:  # type: ignore[index]
            raise StorageRefusedError(
                f"table {prefix}{lost} was deleted; it is there again, empty. The sweep validates the shards again"
            )
    created = f"; created now: {', '.join(prefix + table for table in missing)}" if missing else ""
    return f"{len(wanted)} tables, which the app may read{created}"
