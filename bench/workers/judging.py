"""Workers of the ledger benchmark: one judges shards as the function app does, one only makes its requests.

The benchmark sends commands. ``judge`` runs the app's own step with its own adapters, built by its own composition
root from app settings. ``request`` only makes the requests of judging a shard, with the SDK clients: its throughput
is the maximum that one Python process gets from this Azurite.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from azure.core import MatchConditions
from azure.core.exceptions import ResourceNotFoundError
from azure.data.tables import TableClient, UpdateMode

from bench.workers.timed import serve
from function_app.adapters.connections import HOST_CONNECTION, StorageConnection, read_connection
from function_app.adapters.tables import TABLE_PREFIX
from function_app.adapters.tables.client import new_writer
from function_app.adapters.tables.rows import ascending, escaped, joined, to_columns
from function_app.adapters.tables.versions import counter_key, shard_key, shard_partition
from function_app.bootstrap import DATA_CONNECTION, build_services
from function_app.domain.events import read_uploads
from function_app.domain.records import HistoryEntry, ShardRecord
from function_app.domain.shard_paths import shard_place
from function_app.ingest.uploads import handle_upload

SERVICES = build_services(os.environ)
HOST = StorageConnection(read_connection(os.environ, HOST_CONNECTION))
DATA = StorageConnection(read_connection(os.environ, DATA_CONNECTION, services=("blob",)))
CONTAINER = DATA.blob_service.get_container_client(SERVICES.data_container)
TABLES = {
    name: HOST.table_service.get_table_client(TABLE_PREFIX + name) for name in ("shards", "versions", "decisions")
}


def claim(path: str) -> int:
    """Claim the size of a split, as for its first shard; return the size."""
    place = shard_place(path, SERVICES.pipelines)
    return SERVICES.ledger.claim_split_size(place.dataset_version, place.shard.split, place.shard.num_shards)


def judge(paths: Sequence[str], threads: int, size_bytes: int) -> int:
    """Handle one upload event per path, for blobs of this size; return their number."""
    messages = [_message(path, size_bytes) for path in paths]
    return _all(_handle, messages, threads)


def request(paths: Sequence[str], threads: int, like: str) -> int:
    """Make the requests of judging shards, with rows as large as the row of the judged shard ``like``."""
    row, entry = _row(like), SERVICES.ledger.history(like)[-1]
    return _all(lambda path: _requests(path, row, entry), paths, threads)


def _all(do: Callable[[str], object], things: Sequence[str], threads: int) -> int:
    with ThreadPoolExecutor(max_workers=threads) as pool:
        return len(list(pool.map(do, things)))


def _message(path: str, size_bytes: int) -> str:
    subject = f"/blobServices/default/containers/{SERVICES.data_container}/blobs/{path}"
    members = {"id": path, "eventType": "Microsoft.Storage.BlobCreated", "subject": subject}
    return json.dumps({**members, "data": {"api": "PutBlob", "contentLength": size_bytes}})


def _handle(message: str) -> None:
    for upload in read_uploads(message):
        handle_upload(upload, SERVICES)


def _row(path: str) -> ShardRecord:
    place = shard_place(path, SERVICES.pipelines)
    row = SERVICES.ledger.shard(place.dataset_version, place.shard.split, place.shard.index)
    if row is None:
        raise ValueError(f"{path} has no verdict; judge it first")
    return row


def _requests(path: str, row: ShardRecord, entry: HistoryEntry) -> None:
    """Make the requests of `uploads.judge_shard` in its order."""
    place = shard_place(path, SERVICES.pipelines)
    shard, version = place.shard, place.dataset_version
    partition, key = shard_partition(version, shard.index % 16), shard_key(shard.split, shard.index)
    CONTAINER.get_blob_client(path).download_blob(0, SERVICES.turns.small_bytes + 1).readall()
    _get(TABLES["shards"], partition, key)
    _get(TABLES["versions"], joined(escaped(version.dataset), escaped(version.version)), joined("split", shard.split))
    counter = _get(TABLES["shards"], partition, counter_key(shard.split))
    keys = {"PartitionKey": partition, "RowKey": key}
    accepted = {"PartitionKey": partition, "RowKey": counter_key(shard.split), "split": shard.split, "accepted": 1}
    unchanged = {"mode": UpdateMode.REPLACE, "match_condition": MatchConditions.IfNotModified}
    changed: Any = ("create", accepted)
    if counter is not None:
        changed = ("update", accepted, {**unchanged, "etag": counter.metadata["etag"]})
    verdict = {**to_columns(row), **keys, "writer": new_writer()}
    TABLES["shards"].submit_transaction([("create", verdict), changed])
    subject = {"PartitionKey": joined("subject", escaped(path)), "RowKey": joined(ascending(entry.at), new_writer())}
    TABLES["decisions"].create_entity({**to_columns(entry), **subject, "writer": new_writer()})


def _get(table: TableClient, partition: str, key: str) -> Any:
    try:
        return table.get_entity(partition, key)
    except ResourceNotFoundError:
        return None


if __name__ == "__main__":
    serve({"claim": claim, "judge": judge, "request": request})
