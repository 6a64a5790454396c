"""From an event's JSON to a decision, through the trigger, with blobs and tables of the storage emulator."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

import pytest

from function_app import bootstrap, functions
from function_app.adapters.blobs import BlobShardStore
from function_app.adapters.connections import ConnectionSettings, StorageConnection
from function_app.adapters.tables import TableLedger
from function_app.domain.records import BlobFacts, DatasetVersion, HistoryEntry, ShardState
from function_app.ingest.uploads import OTHERS_UPLOADS
from function_app.ports import Ledger
from function_app.sweep.dead_letters import failures_of
from local_azure.azurite import DATA_ACCOUNT, Azurite
from shard_validation import ShardSource, SourceForbiddenError, encode_example
from shared.record_framing import frame_record
from tests.support.world import TRAIN_SHARDS, World, shard_content

pytestmark = pytest.mark.azurite

NAME = TRAIN_SHARDS[0]
V1 = DatasetVersion(dataset="digits", version="v1")
PATH = f"{V1}/{NAME}"


class BusyStore(BlobShardStore):
    """Acts between the lookup of a blob and its reading, or replaces the store that answers."""

    act: Callable[[], object] = staticmethod(lambda: None)
    other: BlobShardStore | None = None

    def open(self, facts: BlobFacts) -> ShardSource:
        """See ShardStore."""
        self.act()
        return super().open(facts) if self.other is None else self.other.open(facts)


@dataclass
class Uploads:
    """The trigger, and the services that it uses."""

    storage: StorageConnection
    container: Any
    name: str
    """Name of the container."""
    ledger: Ledger
    store: BusyStore

    def put(self, path: str, content: bytes) -> None:
        """Upload a blob."""
        self.container.upload_blob(path, content, overwrite=True)

    def deliver(self, path: str) -> str:
        """Deliver an upload event to the trigger, with the path as Event Grid writes it; return the message."""
        from azure.functions import QueueMessage

        message = event(self.name, path)
        function = functions.shard_uploaded.build().get_user_function()
        function(QueueMessage(id="1", body=message.encode()))
        return message

    def history(self, path: str) -> list[HistoryEntry]:
        """Return the history of a path."""
        return self.ledger.history(path)

    def actions(self, path: str = PATH) -> list[str]:
        """Return the actions in the history of a path."""
        return [decision.action for decision in self.history(path)]


def event(container: str, path: str) -> str:
    """Return a message as Event Grid puts it into the queue."""
    encoded = quote(path)
    members = {
        "id": "831e1650-001e-001b-66ab-eeb76e069631",
        "topic": "/subscriptions/s/resourceGroups/r/providers/Microsoft.Storage/storageAccounts/landfalldata",
        "subject": f"/blobServices/default/containers/{container}/blobs/{encoded}",
        "eventType": "Microsoft.Storage.BlobCreated",
        "eventTime": "2026-11-20T12:00:00Z",
        "data": {"api": "PutBlob", "url": f"https://landfalldata.blob.core.windows.net/{container}/{encoded}"},
        "dataVersion": "",
        "metadataVersion": "1",
    }
    return json.dumps(members)


@pytest.fixture
def uploads(
    data_storage: StorageConnection, host_storage: StorageConnection, unique: str, monkeypatch: pytest.MonkeyPatch
) -> Uploads:
    """The trigger's services: shards and ledger in the emulator, the rest in memory."""
    ledger = TableLedger(host_storage, prefix=unique)
    store = BusyStore(data_storage, unique)
    services = replace(World().services, ledger=ledger, shards=store, data_container=unique)
    monkeypatch.setattr(bootstrap, "_built", [services])
    container = data_storage.blob_service.create_container(unique)
    return Uploads(data_storage, container, unique, ledger, store)


def test_a_shard_is_judged(uploads: Uploads) -> None:
    """This is the undisturbed case of the other tests."""
    uploads.put(PATH, shard_content(1, 2))
    uploads.deliver(PATH)
    row = uploads.ledger.shard(V1, "train", 0)
    assert (ShardState.ACCEPTED, 2) == (row and row.state, row and row.num_records)


def test_a_blob_deleted_before_the_event_came_is_suppressed(uploads: Uploads) -> None:
    """The event was true when it was sent."""
    uploads.put(PATH, shard_content(1))
    uploads.container.delete_blob(PATH)
    uploads.deliver(PATH)
    assert ["event_suppressed"] == uploads.actions()


def test_a_blob_deleted_between_look_and_read_has_no_verdict(uploads: Uploads) -> None:
    """The message is not poison either: there is nothing left to do."""
    uploads.put(PATH, shard_content(1))
    uploads.store.act = lambda: uploads.container.delete_blob(PATH)
    uploads.deliver(PATH)
    assert ("the blob was deleted while it was read", None) == (
        uploads.history(PATH)[0].reason,
        uploads.ledger.shard(V1, "train", 0),
    )


def test_a_blob_overwritten_between_look_and_read_is_judged_as_it_is_now(uploads: Uploads) -> None:
    """The second upload's own event will find the verdict."""
    uploads.put(PATH, b"<html>")
    contents = iter([shard_content(1, 2, 3)])

    def overwrite() -> None:
        for content in contents:
            uploads.put(PATH, content)

    uploads.store.act = overwrite
    uploads.deliver(PATH)
    row = uploads.ledger.shard(V1, "train", 0)
    facts = uploads.store.facts(PATH)
    assert (ShardState.ACCEPTED, facts and facts.etag) == (row and row.state, row and row.etag)
    uploads.deliver(PATH)
    assert ["shard_accepted", "event_suppressed"] == uploads.actions()


def test_a_blob_made_private_between_look_and_read_is_given_up_with_a_clear_reason(
    uploads: Uploads, azurite: Azurite
) -> None:
    """It is delivered again, because the role may be granted; the reason is in the history and in the message."""
    uploads.put(PATH, shard_content(1))
    uploads.store.other = BlobShardStore(without_access(azurite), uploads.name)
    with pytest.raises(
        SourceForbiddenError, match=r"reading the blob is not allowed \(403\); check the role assignments"
    ):
        uploads.deliver(PATH)
    (line,) = uploads.history(PATH)
    (failure,) = failures_of("shard-uploaded", event(uploads.name, PATH), bootstrap.services())
    assert ("shard_unreadable", line.reason, None) == (
        line.action,
        failure.reason,
        uploads.ledger.shard(V1, "train", 0),
    )
    uploads.store.other = None
    uploads.deliver(PATH)
    assert "shard_accepted" == uploads.actions()[-1]


def without_access(azurite: Azurite) -> StorageConnection:
    """Return the data account, opened with a wrong key."""
    key = base64.b64encode(b"another key").decode()
    text = f"AccountName={DATA_ACCOUNT};AccountKey={key};BlobEndpoint={azurite.blob_url()}"
    return StorageConnection(ConnectionSettings(name="X", connection_string=text), retry_total=0)


STRANGE = {
    "spaces": "digits/v 1/train 00000-of-00001.tfrecord",
    "percent": "digits/v1/50%25 %2e%2e %.tfrecord",
    "plus and others": "digits/v1/a+b=c&d?e#f;g.tfrecord",
    "unicode": "digits/größe ✓/\U0001f600-00000-of-00001.tfrecord",
    "backslash-less quotes": "digits/v1/it's (1).tfrecord",
    "1,024 characters": f"digits/v1/{'x' * 1014}",
    "400 of three bytes": f"digits/v1/{'✓' * 400}",
}
ELSEWHERE = {
    "no folder": "train-00000-of-00001.tfrecord",
    "many folders": "digits/v1/a/b/c/train-00000-of-00001.tfrecord",
    "above": f"../digits/v1/{NAME}",
    "up and up": f"digits/v1/../../{NAME}",
    "a backslash": f"digits/v1\\{NAME}",
}


@pytest.mark.parametrize("path", STRANGE.values(), ids=STRANGE)
def test_a_strange_name_is_decided_on_under_its_very_name(uploads: Uploads, path: str) -> None:
    """The name matches no pipeline, and the history says so; no message becomes poison."""
    uploads.put(path, shard_content(1))
    assert uploads.store.facts(path) is not None
    uploads.deliver(path)
    assert ([path], ["event_suppressed"]) == (
        [line.subject for line in uploads.history(path)],
        uploads.actions(path),
    )


@pytest.mark.parametrize(
    "path",
    [
        f"digits/../{NAME}",
        f"digits/v1/..%2f{NAME}",
        f"digits/./{NAME}",
        f"digits//{NAME}",
        f"digits/v1/{NAME}\n",
        f"digits/v1/{NAME}\x00",
        "digits/v1/" + "\U0001f600" * 1000,
    ],
)
def test_what_clients_would_not_upload_is_decided_on_all_the_same(uploads: Uploads, path: str) -> None:
    """Only paths of shards are looked up; the real shard beside it is not affected."""
    uploads.put(PATH, shard_content(1))
    uploads.deliver(path)
    assert (["event_suppressed"], None) == (uploads.actions(path), uploads.ledger.shard(V1, "train", 0))


@pytest.mark.parametrize("path", ELSEWHERE.values(), ids=ELSEWHERE)
def test_what_lies_in_no_versions_folder_is_counted(
    uploads: Uploads, host_storage: StorageConnection, path: str
) -> None:
    """Such paths have no history, however many there are, and the real shard is not affected."""
    uploads.put(PATH, shard_content(1))
    uploads.deliver(path)
    rows = host_storage.table_service.get_table_client(f"{uploads.name}notes").list_entities()
    assert ([], [(f"count|{OTHERS_UPLOADS}", 1)], None) == (
        uploads.actions(path),
        [(row["PartitionKey"], row["number"].value) for row in rows],
        uploads.ledger.shard(V1, "train", 0),
    )


@pytest.mark.parametrize(
    ("dataset", "version", "name"),
    [
        ("digits", "V.1_a-b", NAME),
        ("digits", "9" * 64, f"{'t'}rain-00000-of-00001"),
        ("digits", "v1", f"{'a' * 100}-train.tfrecord-00000-of-00001"),
    ],
)
def test_the_oddest_names_that_shards_may_have_are_judged(
    uploads: Uploads, dataset: str, version: str, name: str
) -> None:
    """They are handled like any other name."""
    path = f"{dataset}/{version}/{name}"
    uploads.put(path, shard_content(1))
    uploads.deliver(path)
    assert ["shard_accepted"] == uploads.actions(path)


def test_a_large_shard_is_read_by_bounded_ranges(uploads: Uploads) -> None:
    """No read exceeds a chunk, however large the blob, and at most one chunk is read ahead."""
    lengths: list[int] = []
    record = frame_record(encode_example({"label": [1], "image": [bytes(100_000)]}))
    uploads.put(PATH, record * 200)

    class Noting:
        """A source that records its reads."""

        def __init__(self, source: ShardSource) -> None:
            self._source = source
            self.name, self.size_bytes = source.name, source.size_bytes

        def read(self, offset: int, length: int) -> bytes:
            """See ShardSource."""
            lengths.append(length)
            return self._source.read(offset, length)

    class NotingStore(BlobShardStore):
        """Opens sources that record their reads."""

        def open(self, facts: BlobFacts) -> ShardSource:
            """See ShardStore."""
            return Noting(super().open(facts))

    uploads.store.other = NotingStore(uploads.storage, uploads.name)
    uploads.deliver(PATH)
    facts = uploads.store.facts(PATH)
    assert facts is not None
    row = uploads.ledger.shard(V1, "train", 0)
    assert (200, True) == (row and row.num_records, facts.size_bytes > 2 * (8 << 20))
    assert max(lengths) <= 8 << 20
    assert sum(lengths) <= facts.size_bytes + (64 << 10)
