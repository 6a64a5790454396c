"""The storage adapters when the network or the service fails: each outcome has an error, no effect is doubled."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from azure.core.pipeline.transport import RequestsTransport

from function_app.adapters.blobs import BlobDocumentStore, BlobShardStore
from function_app.adapters.connections import ConnectionSettings, StorageConnection
from function_app.adapters.queues import StorageRequestQueue
from function_app.adapters.storage_errors import StorageRefusedError
from function_app.adapters.tables import TableLedger
from function_app.domain.errors import ServiceUnavailableError
from function_app.domain.events import TrainingRequest
from function_app.domain.records import NUM_BUCKETS, BlobFacts, NotificationState
from function_app.domain.run_states import RunState
from function_app.ports import utcnow
from local_azure.azurite import HOST_ACCOUNT, Azurite
from shard_validation import SourceForbiddenError, SourceUnavailableError
from tests.chaos.storage_proxy import StorageFault, storage_proxy, through
from tests.support.ledger_records import (
    DIGITS,
    generation_record,
    history_entry,
    notification_record,
    run_record,
    shard_record,
)
from tests.support.lossy_transport import LossyTransport
from tests.support.processes import free_port

pytestmark = pytest.mark.azurite

FACTS = BlobFacts(path="digits/v1/train-00000-of-00001", etag="0X1", size_bytes=10, last_modified=utcnow())
REQUEST = TrainingRequest(dataset_version=DIGITS, generation=1, trigger="closed")

ACTIONS: dict[str, Callable[[StorageConnection], object]] = {
    "ledger read": lambda storage: TableLedger(storage).run("run-1"),
    "ledger scan": lambda storage: TableLedger(storage).runs(),
    "ledger write": lambda storage: TableLedger(storage).record_shard(shard_record()),
    "blob facts": lambda storage: BlobShardStore(storage, "datasets").facts(FACTS.path),
    "blob list": lambda storage: list(BlobShardStore(storage, "datasets").list("digits/")),
    "document write": lambda storage: BlobDocumentStore(storage, "landfall").write_once("a.json", b"{}"),
    "document read": lambda storage: BlobDocumentStore(storage, "landfall").read("a.json", max_bytes=10),
    "queue send": lambda storage: StorageRequestQueue(storage).send(REQUEST),
}


def storage_at(port: int, key: bytes = b"some key") -> StorageConnection:
    """Return a connection without retries to whatever listens on a port."""
    host = f"http://127.0.0.1:{port}/{HOST_ACCOUNT}"
    endpoints = ";".join(f"{service}Endpoint={host}" for service in ("Blob", "Queue", "Table"))
    text = f"AccountName={HOST_ACCOUNT};AccountKey={base64.b64encode(key).decode()};{endpoints}"
    return StorageConnection(ConnectionSettings(name="X", connection_string=text), retry_total=0)


@pytest.fixture
def storage_with_wrong_key(azurite: Azurite) -> Iterator[StorageConnection]:
    text = azurite.connection_string()
    wrong = text.replace(azurite.accounts[HOST_ACCOUNT], base64.b64encode(b"wrong").decode())
    settings = ConnectionSettings(name="X", connection_string=wrong)
    with contextlib.closing(StorageConnection(settings, retry_total=0)) as storage:
        yield storage


@pytest.fixture
def transport() -> LossyTransport:
    return LossyTransport()


@pytest.fixture
def lossy_storage(azurite: Azurite, transport: LossyTransport) -> Iterator[StorageConnection]:
    """The real service behind a network that loses answers; the SDK retries without waiting."""
    settings = ConnectionSettings(name="X", connection_string=azurite.connection_string())
    with contextlib.closing(StorageConnection(settings, transport=transport, retry_backoff_factor=0)) as storage:
        yield storage


@pytest.fixture
def lossy_ledger(lossy_storage: StorageConnection, unique: str) -> TableLedger:
    """The same, with its tables created, so that the next POST is a transaction."""
    ledger = TableLedger(lossy_storage, prefix=unique)
    ledger.shard(DIGITS, "train", 0), ledger.split_sizes(DIGITS), ledger.runs()
    ledger.notifications("run-1"), ledger.history("digits/v1")
    return ledger


@pytest.mark.parametrize("action", ACTIONS)
def test_a_service_that_does_not_answer_is_unavailable(action: str) -> None:
    """Nothing listens: the error names the operation, and the caller may retry later."""
    with pytest.raises(ServiceUnavailableError, match="storage did not answer"):
        ACTIONS[action](storage_at(free_port()))


@pytest.mark.parametrize("action", ACTIONS)
def test_a_wrong_key_is_refused(storage_with_wrong_key: StorageConnection, action: str) -> None:
    """Retrying does not help; the message says where to look."""
    with pytest.raises(StorageRefusedError, match=r"\(403\).*role assignments"):
        ACTIONS[action](storage_with_wrong_key)


def test_a_shard_without_an_answer_is_unavailable() -> None:
    """The validator gets an error of its own type."""
    source = BlobShardStore(storage_at(free_port()), "datasets").open(FACTS)
    with pytest.raises(SourceUnavailableError, match="train-00000-of-00001: storage did not answer"):
        source.read(0, 10)


def test_a_shard_that_may_not_be_read_is_forbidden(storage_with_wrong_key: StorageConnection) -> None:
    """The causes are a wrong key, a missing role, or a blob made private."""
    source = BlobShardStore(storage_with_wrong_key, "datasets").open(FACTS)
    with pytest.raises(SourceForbiddenError, match=r"train-00000-of-00001: reading the blob is not allowed \(403\)"):
        source.read(0, 10)


def test_refused_downloads_leave_no_connection_open(azurite: Azurite, unique: str) -> None:
    """The SDK does not read the first response when it retries, so the connection would stay open until collected."""
    refusals, transport = [StorageFault.BUSY], RequestsTransport()
    with storage_proxy(azurite.ports) as (proxy, ports):
        settings = ConnectionSettings(name="X", connection_string=through(azurite.connection_string(), ports))
        with contextlib.closing(StorageConnection(settings, transport=transport)) as storage:
            documents = BlobDocumentStore(storage, unique)
            storage.blob_service.create_container(unique)
            documents.write_once("a.json", b"{}")
            proxy.draw = lambda _service, _verb, _path: refusals.pop() if refusals else None
            content = documents.read("a.json", max_bytes=10)
            pools = transport.session.get_adapter("http://").poolmanager.pools
            connections = [pools[key].num_connections for key in pools.keys()]  # noqa: SIM118 (it is no Mapping)
        assert (b"{}", [], [1]) == (content, refusals, connections)


def test_a_missing_data_container_is_not_a_missing_blob(data_storage: StorageConnection, unique: str) -> None:
    """Otherwise a misspelt setting would look as if every upload had been deleted."""
    with pytest.raises(StorageRefusedError, match=f"look at {unique}/{FACTS.path}"):
        BlobShardStore(data_storage, unique).facts(FACTS.path)


@pytest.mark.parametrize("is_first", [False, True])
def test_a_verdict_whose_answer_was_lost_counts_once(
    lossy_ledger: TableLedger, transport: LossyTransport, *, is_first: bool
) -> None:
    """The retry finds its own row and reports what the first attempt replaced: nothing."""
    transport.lose_next("POST")
    recorded = lossy_ledger.record_shard(shard_record(), is_first=is_first)
    assert (None, 1, 1) == (
        recorded.replaced,
        lossy_ledger.accepted_in_bucket(DIGITS, "train", 0),
        len(transport.lost),
    )


def test_first_verdicts_whose_answer_was_lost_count_once(
    lossy_ledger: TableLedger, transport: LossyTransport
) -> None:
    """The retry finds its own rows, and returns the counter as they left it."""
    transport.lose_next("POST")
    counter = lossy_ledger.record_first_verdicts([shard_record(0), shard_record(NUM_BUCKETS)])
    assert (2, 2, 1) == (counter, lossy_ledger.accepted_in_bucket(DIGITS, "train", 0), len(transport.lost))


def test_first_verdicts_that_no_transaction_takes_are_left(lossy_ledger: TableLedger) -> None:
    """A transaction of Azure Tables is limited to 4 MiB: the caller records one shard after the other."""
    shards = [
        shard_record(number * NUM_BUCKETS, num_shards=640, statistics={"x": "x" * 120_000}) for number in range(10)
    ]
    assert (None, []) == (lossy_ledger.record_first_verdicts(shards), list(lossy_ledger.shards(DIGITS)))


@pytest.mark.parametrize(
    ("method", "record"),
    [
        ("add_run", run_record()),
        ("add_generation", generation_record()),
        ("add_notification", notification_record()),
    ],
)
def test_a_claim_whose_answer_was_lost_is_still_ours(
    lossy_ledger: TableLedger, transport: LossyTransport, method: str, record: Any
) -> None:
    """The SDK repeats the insert and finds its own row, which is no other owner."""
    transport.lose_next("POST")
    add = getattr(lossy_ledger, method)
    assert ([True, False], 1) == ([add(record), add(record)], len(transport.lost))


def test_a_named_run_whose_answer_was_lost_stays_named(lossy_ledger: TableLedger, transport: LossyTransport) -> None:
    """The retry finds that it changed the closing itself."""
    lossy_ledger.add_generation(generation_record())
    transport.lose_next("POST")
    assert ("run-a", 1) == (lossy_ledger.claim_auto_run(generation_record(), "run-a"), len(transport.lost))


def test_a_saved_run_whose_answer_was_lost_is_saved(lossy_ledger: TableLedger, transport: LossyTransport) -> None:
    """It does not conflict with itself, and the revision is the recorded one."""
    lossy_ledger.add_run(run_record())
    (run,) = lossy_ledger.runs()
    transport.lose_next("POST")
    saved = lossy_ledger.save_run(replace(run, state=RunState.SUBMITTING))
    assert ([saved], 1) == (lossy_ledger.runs(), len(transport.lost))


def test_a_saved_notification_whose_answer_was_lost_is_saved(
    lossy_ledger: TableLedger, transport: LossyTransport
) -> None:
    """It does not conflict with itself; otherwise the sender would leave it to a sweep."""
    lossy_ledger.add_notification(notification_record())
    (notification,) = lossy_ledger.notifications("run-1")
    transport.lose_next("POST")
    saved = lossy_ledger.save_notification(replace(notification, state=NotificationState.SENDING))
    assert ([saved], 1) == (lossy_ledger.notifications("run-1"), len(transport.lost))


def test_a_decision_whose_answer_was_lost_is_one_line(lossy_ledger: TableLedger, transport: LossyTransport) -> None:
    """The retry finds its own entry."""
    transport.lose_next("POST")
    lossy_ledger.add_history_entry(history_entry())
    assert ([history_entry()], 1) == (lossy_ledger.history("digits/v1"), len(transport.lost))
