"""Dead letters: what both ledgers keep, and the sources that they are collected from."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from uuid import uuid4

import pytest
from azure.core.exceptions import ResourceExistsError

from function_app.adapters.connections import StorageConnection
from function_app.adapters.dead_letters import HOST_TRIES, DeadLetterContainer, PoisonQueue
from function_app.adapters.queues import StorageRequestQueue
from function_app.domain.errors import LedgerConflictError
from function_app.domain.records import DeadLetter, DeadLetterState, Undelivered
from function_app.ports import DeadLetterSource, Ledger
from function_app.testing.ledger import MemoryDeadLetterSource
from tests.support.ledger_records import NOON, dead_letter_record
from tests.support.processes import REPOSITORY
from tests.support.threads import at_once


def stored(ledger: Ledger, letter: DeadLetter) -> DeadLetter:
    """Add a letter; return it with its revision."""
    assert ledger.add_dead_letter(letter)
    found = ledger.dead_letter(letter.dead_letter_id)
    assert found is not None
    return found


def test_an_unknown_letter_is_none(ledger: Ledger) -> None:
    """Asking for it is no error."""
    assert (None, []) == (ledger.dead_letter("unknown"), ledger.dead_letters())


def test_a_letter_is_returned_as_it_was_added(ledger: Ledger) -> None:
    """Every member is kept, including a payload of several columns."""
    letter = dead_letter_record(
        "ß✓" * 20_000,
        is_whole=False,
        death="0x8DE2",
        num_deaths=3,
        state=DeadLetterState.REPLAYED,
        num_replays=2,
        replayed_at=NOON + timedelta(hours=1),
    )
    assert letter == replace(stored(ledger, letter), revision="")


def test_a_letter_is_added_once(ledger: Ledger) -> None:
    """If twenty callers find the same dead message, one of them writes the row."""
    won = at_once([partial(ledger.add_dead_letter, dead_letter_record())] * 20)
    assert (1, 1) == (won.count(True), len(ledger.dead_letters()))


def test_a_changed_letter_is_saved_under_its_revision(ledger: Ledger) -> None:
    """If two callers replay it at once, the second one gets a conflict."""
    letter = stored(ledger, dead_letter_record())
    saved = ledger.save_dead_letter(replace(letter, num_replays=1))
    with pytest.raises(LedgerConflictError, match="read it again"):
        ledger.save_dead_letter(replace(letter, num_replays=7))
    assert saved == ledger.dead_letter(letter.dead_letter_id)


def test_a_letter_that_was_never_added_cannot_be_saved(ledger: Ledger) -> None:
    """A save does not replace the insert."""
    with pytest.raises(LedgerConflictError, match="is not there"):
        ledger.save_dead_letter(dead_letter_record())


def test_waiting_letters_come_first_then_the_last_to_die(ledger: Ledger) -> None:
    """Letters that need a decision come first, and the limit cuts off the others."""
    for payload, minutes, state in (
        ("a", 1, "waiting"),
        ("b", 9, "replayed"),
        ("c", 3, "waiting"),
        ("d", 2, "waiting"),
    ):
        died_at = NOON + timedelta(minutes=minutes)
        ledger.add_dead_letter(dead_letter_record(payload, died_at=died_at, state=DeadLetterState(state)))
    assert ["c", "d", "a", "b"] == [letter.payload for letter in ledger.dead_letters()]
    assert ["c", "d"] == [letter.payload for letter in ledger.dead_letters(limit=2)]


def test_a_payload_that_is_too_long_keeps_its_beginning_and_says_so(ledger: Ledger) -> None:
    """The size of a row is limited, and half a message must not be replayed."""
    letter = stored(ledger, dead_letter_record("x" * 300_000))
    assert (200 << 10, False) == (len(letter.payload), letter.is_whole)


@dataclass(frozen=True)
class Bench:
    """A source, and a way to give something up."""

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


def in_memory(text: str) -> Undelivered:
    return Undelivered(source="s", payload=text, identity=text, error="", tries=1, died_at=NOON, death=str(uuid4()))


def write_blob(storage: StorageConnection, container: str, document: object, name: str | None = None) -> None:
    """Write a blob as Event Grid would."""
    client = storage.blob_service.get_container_client(container)
    with contextlib.suppress(ResourceExistsError):  # created for the first one
        client.create_container()
    text = document if isinstance(document, str) else json.dumps(document)
    client.upload_blob(name or f"SHARDS/2026/11/20/9/{abs(hash(text))}.json", text)


def payloads(bench: Bench, limit: int = 100) -> list[str]:
    """Take everything and return the payloads."""
    return [one.payload for one in bench.source.undelivered(limit=limit)]


def test_where_nothing_ever_died_there_is_nothing(bench: Bench) -> None:
    """Neither queue nor container exists before the first dead letter."""
    assert [] == payloads(bench)


def test_what_was_taken_is_gone(bench: Bench) -> None:
    """Each item is returned once, if nothing fails."""
    texts = [json.dumps({"id": str(number)}) for number in range(3)]
    for text in texts:
        bench.give_up(text)
    assert (texts, []) == (sorted(payloads(bench)), payloads(bench))


def test_no_more_is_taken_than_was_asked_for(bench: Bench) -> None:
    """The limit leaves time for the other work of a sweep."""
    for number in range(4):
        bench.give_up(json.dumps({"id": str(number)}))
    assert 3 == len(payloads(bench, limit=3))


def test_each_death_of_a_payload_has_a_name_of_its_own(bench: Bench) -> None:
    """Two within a second have the same time."""
    deaths = []
    for _ in range(2):
        bench.give_up('{"id": "1"}')
        deaths += [one.death for one in bench.source.undelivered(limit=10)]
    assert (2, True) == (len(set(deaths)), all(deaths))


@pytest.mark.azurite
def test_what_was_not_come_back_for_stays(host_storage: StorageConnection, unique: str) -> None:
    """A sweep that dies between taking and writing loses nothing."""
    write_blob(host_storage, unique, [{"id": "1"}])
    source = DeadLetterContainer(host_storage, unique)
    first = next(iter(source.undelivered(limit=10)))
    assert [('{"id": "1"}', first.death)] == [(one.payload, one.death) for one in source.undelivered(limit=10)]


@pytest.mark.azurite
def test_a_blob_that_cannot_be_understood_stays(host_storage: StorageConnection, unique: str) -> None:
    """Its letter says so each time; a blob that cannot be read is not deleted."""
    write_blob(host_storage, unique, "no JSON")
    write_blob(host_storage, unique, "", name="SHARDS/empty.json")
    source = DeadLetterContainer(host_storage, unique)
    found = [[one.is_whole for one in source.undelivered(limit=10)] for _ in range(2)]
    assert [[False, False]] * 2 == found


@pytest.mark.azurite
def test_a_message_that_is_not_base64_is_taken_as_it_is(host_storage: StorageConnection, unique: str) -> None:
    """Another program put it into the queue, and even the host could not decode it."""
    client = host_storage.queue_service.create_queue(f"{unique}-poison")
    client.send_message("{plain}")
    (found,) = PoisonQueue(host_storage, unique).undelivered(limit=10)
    assert ("{plain}", True) == (found.payload, found.error.startswith("the message is not base64"))


def test_the_number_of_tries_is_the_hosts() -> None:
    """The constant repeats the value in host.json, which the adapter does not read."""
    host = json.loads((REPOSITORY / "host.json").read_text(encoding="utf-8"))
    assert host["extensions"]["queues"]["maxDequeueCount"] == HOST_TRIES
