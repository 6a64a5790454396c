"""Documents and the queue of training requests: behaviour that the doubles and the storage adapters share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

import pytest

from function_app.adapters.blobs import BlobDocumentStore
from function_app.adapters.connections import StorageConnection
from function_app.adapters.queues import StorageRequestQueue
from function_app.domain.errors import DocumentTooLargeError
from function_app.domain.events import TrainingRequest
from function_app.domain.records import DatasetVersion
from function_app.ports import DocumentStore
from function_app.testing.stores import MemoryDocumentStore, MemoryRequestQueue
from local_azure.processes import wait_until
from tests.contract.function_app.conftest import BOTH
from tests.support.ledger_records import DIGITS
from tests.support.threads import at_once

HIDDEN_FOR = timedelta(seconds=1)
PATH = "manifests/digits/v1 ✓/g1-0123456789ab.json"


@pytest.fixture(params=BOTH)
def documents(request: pytest.FixtureRequest, unique: str) -> DocumentStore:
    if request.param == "memory":
        return MemoryDocumentStore()
    storage: StorageConnection = request.getfixturevalue("host_storage")
    return BlobDocumentStore(storage, unique)


def test_a_document_that_was_never_written_is_none(documents: DocumentStore) -> None:
    """This also holds if its container does not exist yet."""
    assert documents.read(PATH, max_bytes=10) is None


def test_a_document_is_read_as_it_was_written(documents: DocumentStore) -> None:
    """The first write creates what it needs."""
    assert documents.write_once(PATH, b'{"shards": []}')
    assert b'{"shards": []}' == documents.read(PATH, max_bytes=14)


def test_a_document_is_written_once(documents: DocumentStore) -> None:
    """The second write reports it and changes nothing."""
    assert [True, False] == [documents.write_once(PATH, content) for content in (b"first", b"second")]
    assert b"first" == documents.read(PATH, max_bytes=100)


def test_an_empty_document_is_not_an_absent_one(documents: DocumentStore) -> None:
    """The document exists without bytes."""
    documents.write_once(PATH, b"")
    assert b"" == documents.read(PATH, max_bytes=100)


def test_a_folder_has_documents_or_none(documents: DocumentStore) -> None:
    """Documents in subfolders count; a prefix of a name is no folder, and a missing container has none."""
    assert not documents.has_any("manifests/digits")
    documents.write_once(PATH, b"")
    found = [documents.has_any(folder) for folder in ("manifests/digits", "manifests/digits/", "manifests/dig")]
    assert [True, True, False] == found


def test_the_documents_of_a_folder_are_named_in_order(documents: DocumentStore) -> None:
    """Documents in subfolders are listed, too, up to the limit."""
    assert documents.names("models/digits", most=5) == []
    for name in ("b.bin", "saved_model/a.pb", "saved_model/variables/0"):
        documents.write_once(f"models/digits/{name}", b"")
    documents.write_once("models/digits-2/c.bin", b"")
    assert ["b.bin", "saved_model/a.pb", "saved_model/variables/0"] == documents.names("models/digits", most=5)
    assert ["b.bin", "saved_model/a.pb"] == documents.names("models/digits/", most=2)


def test_a_document_larger_than_allowed_is_not_read(documents: DocumentStore) -> None:
    """One byte too many is an error that names the document and the limit."""
    documents.write_once(PATH, b"x" * 101)
    with pytest.raises(DocumentTooLargeError, match=r"g1-0123456789ab\.json has more than 100 bytes"):
        documents.read(PATH, max_bytes=100)


def test_a_document_may_be_written_over(documents: DocumentStore) -> None:
    """The last content is kept, shorter or longer; the first write creates what it needs."""
    for content in (b"first", b"the second", b"3rd"):
        documents.write(PATH, content)
        assert content == documents.read(PATH, max_bytes=100)


def test_a_deleted_document_is_none(documents: DocumentStore) -> None:
    """Deleting it again, or from a missing container, is no error."""
    documents.delete(PATH)
    documents.write(PATH, b"content")
    for _ in range(2):
        documents.delete(PATH)
    assert documents.read(PATH, max_bytes=10) is None


def test_of_twenty_writers_one_wins(documents: DocumentStore) -> None:
    """Twenty threads write the first document of a container at once; the winner's content is kept."""
    contents = [f"writer {number}".encode() for number in range(20)]
    won = at_once([partial(documents.write_once, PATH, content) for content in contents])
    winners = [content for content, mine in zip(contents, won, strict=True) if mine]
    assert winners == [documents.read(PATH, max_bytes=100)]


@dataclass(frozen=True)
class Requests:
    """A queue, and the messages that its trigger would receive, decoded as the Functions host does."""

    queue: MemoryRequestQueue | StorageRequestQueue
    received: Callable[[], list[str]]
    reappear: Callable[[], None]
    """Let the time pass during which taken messages are hidden."""


@pytest.fixture(params=BOTH)
def requests(request: pytest.FixtureRequest, unique: str) -> Requests:
    if request.param == "memory":
        memory = MemoryRequestQueue()
        return Requests(queue=memory, received=lambda: memory.messages, reappear=memory.reappear)
    storage: StorageConnection = request.getfixturevalue("host_storage")
    return Requests(
        queue=StorageRequestQueue(storage, unique),
        received=partial(received, storage, unique),
        reappear=partial(shown_again, storage, unique),
    )


def shown_again(storage: StorageConnection, queue: str) -> None:
    """Wait until a message can be taken."""
    client = storage.queue_service.get_queue_client(queue)
    wait_until(client.peek_messages, what="the message to reappear")


def received(storage: StorageConnection, queue: str) -> list[str]:
    """Take every message off a queue, decoding Base64."""
    from azure.storage.queue import TextBase64DecodePolicy

    client = storage.queue_service.get_queue_client(queue, message_decode_policy=TextBase64DecodePolicy())
    return [message.content for message in client.receive_messages(messages_per_page=32)]


def training_request(number: int = 1) -> TrainingRequest:
    version = DatasetVersion(dataset="größe ✓", version="v 1")
    return TrainingRequest(dataset_version=version, generation=number, trigger="http", run_id=f"run-{number}")


def test_a_request_arrives_as_it_was_sent(requests: Requests) -> None:
    """The first request creates the queue; the trigger reads the request as sent."""
    requests.queue.send(training_request())
    assert [training_request()] == [TrainingRequest.from_json(text) for text in requests.received()]


def test_a_hidden_request_comes_later_unless_it_is_deleted(requests: Requests) -> None:
    """The queue's function therefore starts a run only if the sender does not start it."""
    kept = requests.queue.send(training_request(1), hidden_for=HIDDEN_FOR)
    deleted = requests.queue.send(training_request(2), hidden_for=HIDDEN_FOR)
    hidden = requests.queue.take(32, hidden_for=HIDDEN_FOR)
    requests.queue.delete(deleted)
    requests.reappear()
    assert ([], [kept.text]) == (list(hidden), requests.received())


def test_a_request_without_a_run_has_none(requests: Requests) -> None:
    """The step then resolves it."""
    sent = TrainingRequest(dataset_version=DIGITS, generation=1, trigger="closed")
    requests.queue.send(sent)
    assert [sent] == [TrainingRequest.from_json(text) for text in requests.received()]


def test_twenty_senders_lose_no_request(requests: Requests) -> None:
    """This holds even if none of them finds a queue."""
    at_once([partial(requests.queue.send, training_request(number)) for number in range(20)])
    generations = [TrainingRequest.from_json(text).generation for text in requests.received()]
    assert list(range(20)) == sorted(generations)


def test_a_message_that_is_taken_is_hidden_and_comes_again(requests: Requests) -> None:
    """A process that takes it and dies before the delete loses nothing."""
    requests.queue.send_text("größe ✓")
    first = requests.queue.take(32, hidden_for=HIDDEN_FOR)
    hidden = requests.queue.take(32, hidden_for=HIDDEN_FOR)
    requests.reappear()
    again = requests.queue.take(32, hidden_for=HIDDEN_FOR)
    assert [("größe ✓", 1)] == [(message.text, message.num_deliveries) for message in first]
    assert ([], [("größe ✓", 2)]) == (list(hidden), [(message.text, message.num_deliveries) for message in again])


def test_a_message_that_is_deleted_is_gone(requests: Requests) -> None:
    """At most the requested number is taken; the others stay."""
    for text in ("one", "two", "three"):
        requests.queue.send_text(text)
    taken = requests.queue.take(2, hidden_for=timedelta(minutes=1))
    for message in taken:
        requests.queue.delete(message)
    assert (["one", "two"], ["three"]) == ([message.text for message in taken], requests.received())


def test_a_delete_that_is_too_late_changes_nothing(requests: Requests) -> None:
    """The message was delivered again, and its new owner decides."""
    requests.queue.send_text("one")
    (late,) = requests.queue.take(1, hidden_for=HIDDEN_FOR)
    requests.reappear()
    (again,) = requests.queue.take(1, hidden_for=HIDDEN_FOR)
    requests.queue.delete(late)
    requests.reappear()
    assert (again.text, ["one"]) == ("one", requests.received())


def test_what_is_no_base64_is_left_to_the_host(host_storage: StorageConnection, unique: str) -> None:
    """The host moves such a message to the poison queue."""
    queue = StorageRequestQueue(host_storage, unique)
    queue.send_text("one")
    host_storage.queue_service.get_queue_client(unique).send_message("%%%")
    assert ["one"] == [message.text for message in queue.take(32, hidden_for=HIDDEN_FOR)]
