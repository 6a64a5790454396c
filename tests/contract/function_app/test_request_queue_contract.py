"""The queue of training requests: what the in-memory one and the real one keep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest

from function_app.adapters.connections import StorageConnection
from function_app.adapters.queues import StorageRequestQueue
from function_app.domain.events import TrainingRequest
from function_app.domain.records import DatasetVersion
from function_app.ports import RequestQueue
from function_app.testing.stores import MemoryRequestQueue
from tests.contract.function_app.conftest import BOTH
from tests.support.ledger_records import DIGITS
from tests.support.threads import at_once


@dataclass(frozen=True)
class Requests:
    """A queue, and what its trigger would be given: messages as the Functions host decodes them."""

    queue: RequestQueue
    received: Callable[[], list[str]]


@pytest.fixture(params=BOTH)
def requests(request: pytest.FixtureRequest, unique: str) -> Requests:
    if request.param == "memory":
        memory = MemoryRequestQueue()
        return Requests(queue=memory, received=lambda: memory.messages)
    storage: StorageConnection = request.getfixturevalue("host_storage")
    return Requests(queue=StorageRequestQueue(storage, unique), received=partial(received, storage, unique))


def received(storage: StorageConnection, queue: str) -> list[str]:
    """Take every message off a queue, decoding Base64."""
    from azure.storage.queue import TextBase64DecodePolicy

    client = storage.queue_service.get_queue_client(queue, message_decode_policy=TextBase64DecodePolicy())
    return [message.content for message in client.receive_messages(messages_per_page=32)]


def training_request(number: int = 1) -> TrainingRequest:
    version = DatasetVersion(dataset="größe ✓", version="v 1")
    return TrainingRequest(dataset_version=version, generation=number, trigger="http", run_id=f"run-{number}")


def test_a_request_arrives_as_it_was_sent(requests: Requests) -> None:
    """The first one makes the queue; what the trigger reads is the request."""
    requests.queue.send(training_request())
    assert [training_request()] == [TrainingRequest.from_json(text) for text in requests.received()]


def test_a_request_without_a_run_has_none(requests: Requests) -> None:
    """The step resolves it then."""
    sent = TrainingRequest(dataset_version=DIGITS, generation=1, trigger="closed")
    requests.queue.send(sent)
    assert [sent] == [TrainingRequest.from_json(text) for text in requests.received()]


def test_twenty_senders_lose_no_request(requests: Requests) -> None:
    """Also when all of them find the queue absent."""
    at_once([partial(requests.queue.send, training_request(number)) for number in range(20)])
    generations = [TrainingRequest.from_json(text).generation for text in requests.received()]
    assert list(range(20)) == sorted(generations)
