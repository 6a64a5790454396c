"""Sources of dead letters: what the one in memory, the poison queue and Event Grid's container keep."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from uuid import uuid4

import pytest
from azure.core.exceptions import ResourceExistsError

from function_app.adapters.connections import StorageConnection
from function_app.adapters.dead_letters import HOST_TRIES, DeadLetterContainer, PoisonQueue
from function_app.adapters.queues import StorageRequestQueue
from function_app.domain.records import GivenUp
from function_app.ports import DeadLetterSource
from function_app.testing.ledger import MemoryDeadLetterSource
from tests.support.ledger_records import NOON
from tests.support.processes import REPOSITORY


@dataclass(frozen=True)
class Bench:
    """A source, and what gives something up."""

    source: DeadLetterSource
    give_up: Callable[[str], object]


@pytest.fixture(
    params=[
        "memory",
        pytest.param("queue", marks=pytest.mark.azurite),
        pytest.param("container", marks=pytest.mark.azurite),
    ]
)
def bench(request: pytest.FixtureRequest, unique: str) -> Bench:
    """Each of the three."""
    if request.param == "memory":
        memory = MemoryDeadLetterSource()
        return Bench(memory, lambda text: memory.lying.append(in_memory(text)))
    storage: StorageConnection = request.getfixturevalue("host_storage")
    if request.param == "queue":
        return Bench(PoisonQueue(storage, unique), StorageRequestQueue(storage, f"{unique}-poison").send_text)
    return Bench(DeadLetterContainer(storage, unique), lambda text: write_blob(storage, unique, [json.loads(text)]))


def in_memory(text: str) -> GivenUp:
    return GivenUp(source="s", payload=text, identity=text, error="", tries=1, died_at=NOON, death=str(uuid4()))


def write_blob(storage: StorageConnection, container: str, document: object, name: str | None = None) -> None:
    """Leave a blob as Event Grid would."""
    client = storage.blob_service.get_container_client(container)
    with contextlib.suppress(ResourceExistsError):  # made for the first one
        client.create_container()
    text = document if isinstance(document, str) else json.dumps(document)
    client.upload_blob(name or f"SHARDS/2026/11/20/9/{abs(hash(text))}.json", text)


def payloads(bench: Bench, limit: int = 100) -> list[str]:
    """Take everything and return the payloads."""
    return [one.payload for one in bench.source.given_up(limit=limit)]


def test_where_nothing_ever_died_there_is_nothing(bench: Bench) -> None:
    """Neither queue nor container exists before the first death."""
    assert [] == payloads(bench)


def test_what_was_taken_is_gone(bench: Bench) -> None:
    """Each is handed out once, where all goes well."""
    texts = [json.dumps({"id": str(number)}) for number in range(3)]
    for text in texts:
        bench.give_up(text)
    assert (texts, []) == (sorted(payloads(bench)), payloads(bench))


def test_no_more_is_taken_than_was_asked_for(bench: Bench) -> None:
    """A sweep has other work."""
    for number in range(4):
        bench.give_up(json.dumps({"id": str(number)}))
    assert 3 == len(payloads(bench, limit=3))


def test_each_death_of_a_payload_has_a_name_of_its_own(bench: Bench) -> None:
    """Two within a second have the same time."""
    deaths = []
    for _ in range(2):
        bench.give_up('{"id": "1"}')
        deaths += [one.death for one in bench.source.given_up(limit=10)]
    assert (2, True) == (len(set(deaths)), all(deaths))


@pytest.mark.azurite
def test_what_was_not_come_back_for_stays(host_storage: StorageConnection, unique: str) -> None:
    """A sweep that dies between taking and writing loses nothing."""
    write_blob(host_storage, unique, [{"id": "1"}])
    source = DeadLetterContainer(host_storage, unique)
    first = next(iter(source.given_up(limit=10)))
    assert [('{"id": "1"}', first.death)] == [(one.payload, one.death) for one in source.given_up(limit=10)]


@pytest.mark.azurite
def test_a_blob_that_cannot_be_understood_stays(host_storage: StorageConnection, unique: str) -> None:
    """Its letter says so each time; nobody deletes what nobody has read."""
    write_blob(host_storage, unique, "no JSON")
    write_blob(host_storage, unique, "", name="SHARDS/empty.json")
    source = DeadLetterContainer(host_storage, unique)
    found = [[one.is_whole for one in source.given_up(limit=10)] for _ in range(2)]
    assert [[False, False]] * 2 == found


@pytest.mark.azurite
def test_a_message_that_is_not_base64_is_taken_as_it_is(host_storage: StorageConnection, unique: str) -> None:
    """Somebody else wrote it into the queue; the host could not even decode it."""
    client = host_storage.queue_service.create_queue(f"{unique}-poison")
    client.send_message("{plain}")
    (found,) = PoisonQueue(host_storage, unique).given_up(limit=10)
    assert ("{plain}", True) == (found.payload, found.error.startswith("the message is not base64"))


def test_the_number_of_tries_is_the_hosts() -> None:
    """The constant stands for host.json, which the adapter does not read."""
    host = json.loads((REPOSITORY / "host.json").read_text(encoding="utf-8"))
    assert host["extensions"]["queues"]["maxDequeueCount"] == HOST_TRIES
