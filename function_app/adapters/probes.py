"""Checks for `landfall doctor`, made with the app's identity and connections."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

from function_app.adapters.blobs import BlobDocumentStore
from function_app.adapters.connections import ConnectionSettings, StorageConnection, credential
from function_app.adapters.storage_errors import StorageRefusedError, storage_errors
from function_app.adapters.tables.client import Table, Tables
from function_app.domain.checks import AbsentHereError, Probe
from shared.errors import LandfallError

if TYPE_CHECKING:
    from function_app.adapters.azure_ml import WorkspaceClient
    from function_app.adapters.notifiers import TopicNotifier

MAX_BYTES = 1 << 10
MAX_SKEW_S = 60
TELEMETRY = ("APPLICATIONINSIGHTS_CONNECTION_STRING", "APPLICATIONINSIGHTS_AUTHENTICATION_STRING")
_WITHOUT = {
    "shards": "upload one shard of each closed version again, and the sweep validates the others of that version; "
    "shards of open versions it validates by itself",
    "versions": "upload one shard of each split of each version again: the last one closes the version",
}
"""Lost table → how its rows are made again. Without an upload, the sweep skips closed or judged versions."""
AZURE = "https://management.azure.com/.default"


def storage_probes(
    host: StorageConnection,
    data: StorageConnection,
    *,
    read: Iterable[tuple[StorageConnection, str]],
    written: Iterable[tuple[StorageConnection, str]],
    queues: Iterable[str],
    tables: str,
) -> Iterator[Probe]:
    """Yield the checks of containers to read and to write, of queues, and of the tables with a prefix."""
    looks: list[tuple[StorageConnection, str, Callable[[StorageConnection, str], str]]]
    looks = [*((*each, _readable) for each in read), *((*each, _writable) for each in written)]
    for connection, name, look in looks:
        account = "data" if connection is data else "host"
        subject = f"container {name} of the {account} account"
        yield Probe(part="storage", subject=subject, look=partial(look, connection, name))
    for name in queues:
        yield Probe(part="queues", subject=f"queue {name}", look=partial(_queue, host, name))
    yield Probe(part="tables", subject="ledger", look=partial(_ledger, host, tables), fix="")


def _readable(connection: StorageConnection, name: str) -> str:
    """Raise an error unless the container exists and its blobs may be read. Two operations."""
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
    """Write, read and delete in five operations; nothing remains."""
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
    """Return a name that neither a shard nor a document has."""
    return f"landfall-doctor/{uuid.uuid4().hex}.json"


def _queue(connection: StorageConnection, name: str) -> str:
    """Read the queue's message count. One operation."""
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
    """Create missing tables, as their first use does. Raises StorageRefusedError for a lost table.

    The first upload writes to the tables of versions and shards; if only one of them exists, the other was deleted.
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
                f"table {prefix}{lost} was deleted; it exists again, empty. Restore its rows if you have a copy; "
                f"otherwise {_WITHOUT[lost]}"
            )
    created = f"; created now: {', '.join(prefix + table for table in missing)}" if missing else ""
    return f"{len(wanted)} tables, which the app may read{created}"


def identity_probes(connections: Iterable[ConnectionSettings], client_id: str | None) -> Iterator[Probe]:
    """Yield the checks of the app's identity and of the credentials for each storage account."""
    yield Probe(part="identity", subject="tokens", look=partial(_token, client_id))
    for connection in connections:
        yield Probe(part="identity", subject=connection.name, look=partial(_opened, connection))


def _token(client_id: str | None) -> str:
    from azure.core.exceptions import AzureError

    name = f"client id {client_id}" if client_id else "the default one, as AZURE_CLIENT_ID is not set"
    try:
        credential(client_id).get_token(AZURE)
    except AzureError as error:
        raise LandfallError(f"no token for the app's identity ({name}): {error}") from error
    return f"the app's identity gets tokens ({name})"


def _opened(connection: ConnectionSettings) -> str:
    if connection.connection_string is not None:
        raise AbsentHereError("a key opens this account, so the roles of an identity were not tried")
    return f"the identity opens it (client id {connection.client_id or 'of AZURE_CLIENT_ID'})"


def clock_probe(connection: StorageConnection, container: str, clock: Callable[[], datetime], fix: str) -> Probe:
    """Return the check of the app's clock."""
    return Probe(part="clock", subject="function app", look=partial(_clock, connection, container, clock), fix=fix)


def _clock(connection: StorageConnection, container: str, clock: Callable[[], datetime]) -> str:
    """Compare the app's clock with storage's, which dates blobs and refuses stale requests. One operation."""
    dates: list[str] = []
    with storage_errors("ask storage for the time"):
        connection.blob_service.get_container_client(container).get_container_properties(
            raw_response_hook=lambda response: dates.append(response.http_response.headers.get("Date", ""))
        )
    try:
        skew_s = (clock() - parsedate_to_datetime(dates[-1])).total_seconds()
    except (IndexError, TypeError, ValueError) as error:
        raise StorageRefusedError("storage states no time") from error
    if abs(skew_s) > MAX_SKEW_S:
        raise LandfallError(f"it is {abs(skew_s):.0f} s {'ahead of' if skew_s > 0 else 'behind'} that of storage")
    return f"within {MAX_SKEW_S} s of that of storage"


def asset_probes(client: WorkspaceClient) -> Iterator[Probe]:
    """Yield the checks that the assets of jobs are registered."""
    ids = {"image": client.workspace.environment_id, "code": client.workspace.code_id}
    for part, arm_id in ids.items():
        yield Probe(part=part, subject=_asset_name(arm_id), look=partial(_asset, client, arm_id), fix="azd up")


def _asset_name(arm_id: str) -> str:
    *_, name, _, version = arm_id.split("/")
    return f"{name}:{version}"


def _asset(client: WorkspaceClient, arm_id: str) -> str:
    """Read the asset. One GET."""
    from azure.core.exceptions import ResourceNotFoundError

    *_, kind, name, _, version = arm_id.split("/")
    with client.errors(f"look at {kind} {name}:{version}"):
        operations: Any = client.get().environments if kind == "environments" else client.get()._code  # noqa: SLF001
        try:
            found = operations.get(name, version)
        except ResourceNotFoundError as error:
            raise LandfallError(f"the workspace {client.workspace.name} does not have it") from error
    return f"registered, image {found.image}" if kind == "environments" else "registered"


def topic_probe(notifier: TopicNotifier | None) -> Probe:
    """Return the check that the app may send to the notification topic."""
    return Probe(part="notifications", subject="topic", look=partial(_topic, notifier))


def _topic(notifier: TopicNotifier | None) -> str:
    if notifier is None:
        raise AbsentHereError("LANDFALL_NOTIFICATION_TOPIC_ENDPOINT is not set, so no pipeline can notify a topic")
    return notifier.check()


def telemetry_probe(environ: Mapping[str, str], *, in_azure: bool) -> Probe:
    """Return the check that telemetry has a destination and an identity; otherwise it is lost silently."""
    return Probe(part="telemetry", subject="settings", look=partial(_telemetry, environ, in_azure))


def _telemetry(environ: Mapping[str, str], in_azure: bool) -> str:  # noqa: FBT001
    if not in_azure:
        raise AbsentHereError("telemetry goes to Application Insights in Azure only")
    missing = [name for name in TELEMETRY if not environ.get(name)]
    if missing:
        raise LandfallError(f"{' and '.join(missing)} must be set, or all telemetry is lost")
    if "Authorization=AAD" not in environ[TELEMETRY[1]]:
        raise LandfallError(f"{TELEMETRY[1]} must be ClientId=…;Authorization=AAD, as keys are off")
    return "where telemetry goes is set, and the identity that sends it"
