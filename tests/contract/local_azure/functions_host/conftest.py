"""One development host for all tests that do not stop it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from azure.storage.queue import QueueClient

from local_azure.azurite import Azurite
from tests.contract.local_azure.dev_host import DevHost, fixture_settings, start_dev_host

MASTER_KEY = "fixture-master-key"
KEYS = {
    "masterKey": MASTER_KEY,
    "functionKeys": {"default": "fixture-host-key"},
    "functions": {"guarded": {"default": "fixture-function-key"}},
}


@pytest.fixture(scope="session")
def dev_host(azurite: Azurite, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevHost]:
    folder = tmp_path_factory.mktemp("dev_host")
    settings = fixture_settings(azurite.connection_string(), "inbox", folder / "journal", schedule="* * * * * *")
    settings["FIXTURE_KEYS"] = json.dumps(KEYS)
    running = start_dev_host(folder, settings, "--keys-env", "FIXTURE_KEYS", "--queue-lease-s", "3")
    yield running
    running.process.stop()


@dataclass(frozen=True, kw_only=True)
class Queue:
    """A queue with messages in Base64."""

    client: QueueClient

    def send(self, body: str) -> None:
        self.client.send_message(base64.b64encode(body.encode()).decode())

    def contents(self) -> list[str]:
        """The visible messages, still encoded."""
        return [message.content for message in self.client.peek_messages(32)]


def open_queue(azurite: Azurite, name: str) -> Queue:
    return Queue(client=QueueClient.from_connection_string(azurite.connection_string(), name))


@pytest.fixture
def inbox(azurite: Azurite, dev_host: DevHost) -> Iterator[Queue]:
    """The queue of the running development host."""
    del dev_host  # only that it has created the queue
    queue = open_queue(azurite, "inbox")
    yield queue
    queue.client.close()


@pytest.fixture
def poison(azurite: Azurite, inbox: Queue) -> Iterator[Queue]:
    del inbox
    queue = open_queue(azurite, "inbox-poison")
    yield queue
    queue.client.close()


@pytest.fixture
def app_folder(tmp_path: Path) -> Path:
    """An empty folder for an app of this test."""
    folder = tmp_path / "app"
    folder.mkdir()
    return folder
