"""The world of the scenarios with real storage: tables, queues and blobs in a separate Azurite account.

Azure ML, the recipients and the clock remain doubles, which outlive their process in a file.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError
from azure.storage.queue import QueueClient, TextBase64DecodePolicy

from function_app.adapters.blobs import BlobDocumentStore, BlobRejectedCopies, BlobShardStore
from function_app.adapters.connections import ConnectionSettings, StorageConnection
from function_app.adapters.dead_letters import DEAD_LETTER_CONTAINER, DeadLetterContainer, PoisonQueue
from function_app.adapters.queues import StorageRequestQueue
from function_app.adapters.tables import TABLE_PREFIX, TableLedger
from function_app.domain.events import (
    CREATED,
    SHARD_UPLOADED,
    SHARD_UPLOADED_BULK,
    TRAINING_REQUESTED,
    TrainingRequest,
    read_uploads,
)
from function_app.ingest.uploads import handle_upload
from function_app.ports import utcnow
from function_app.runs.submission import handle_request
from function_app.testing.stores import MemoryRejectedCopies, MemoryShardStore
from local_azure.processes import wait_until
from tests.support.world import World

POISON = f"{SHARD_UPLOADED}-poison"
GIVEN_UP = {"id": "1", "eventType": CREATED, "subject": "/blobServices/default/containers/others/blobs/a/b/c"}
HIDDEN_S = 5
"""How many seconds a taken message is hidden: longer than handling it takes, but a short wait after a death."""


@dataclass(kw_only=True)
class AzuriteWorld(World):
    """A world in which each process opens its own ports to storage, see ``opened``."""

    connection: str
    """The account's connection string."""
    app_connection: str = ""
    """Set if the function app uses a proxy that fails; the SDK then retries once."""
    storage: StorageConnection | None = field(default=None, init=False)
    """None until a process opens the world."""
    app_storage: StorageConnection | None = field(default=None, init=False)
    """The function app's connection, which may be the same."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.clock.now = utcnow()  # the time of a blob is that of its upload

    @property
    def account(self) -> StorageConnection:
        """The open connection."""
        if self.storage is None:
            raise ValueError("this process has not opened the world")
        return self.storage

    def create(self) -> None:
        """Create the containers of the data account, as a deployment does."""
        with contextlib.closing(self._connection()) as storage:
            for container in (self.services.data_container, "quarantine"):
                storage.blob_service.create_container(container)

    def opened(self) -> AzuriteWorld:
        """Return the world with real ports, except for those that a scenario has replaced."""
        found = copy.copy(self)
        found.storage = self._connection()
        storage = found.storage if not self.app_connection else self._connection(self.app_connection, retry_total=1)
        found.app_storage = storage
        services = replace(
            self.services,
            ledger=TableLedger(storage),
            documents=BlobDocumentStore(storage, "landfall"),
            run_outputs=BlobDocumentStore(storage, "runs"),
            requests=StorageRequestQueue(storage),
            queues={name: StorageRequestQueue(storage, name) for name in self.services.queues},
            dead_letter_sources=[PoisonQueue(storage, SHARD_UPLOADED, HIDDEN_S), DeadLetterContainer(storage)],
        )
        if type(services.shards) is MemoryShardStore:
            services = replace(services, shards=BlobShardStore(storage, services.data_container))
        if type(services.rejected_copies) is MemoryRejectedCopies:
            services = replace(services, rejected_copies=BlobRejectedCopies(storage, services.data_container))
        found.services = services
        found.run_outputs = services.run_outputs  # type: ignore[assignment]  # has the double's method
        self._await_messages(found)
        return found

    def close(self) -> None:
        """Close what this process opened."""
        for storage in (self.storage, self.app_storage):
            if storage is not None:
                storage.close()

    def put(self, name: str, content: bytes | None = None, version: str = "v1", dataset: str = "digits") -> str:
        """See World."""
        path = super().put(name, content, version, dataset)
        if not isinstance(self.services.shards, MemoryShardStore):
            _, written = self.shards.blobs[path]
            self._blobs(self.services.data_container).upload_blob(path, written, overwrite=True)
        return path

    def remove(self, path: str) -> None:
        """See World."""
        with contextlib.suppress(ResourceNotFoundError):  # the step may be repeated
            self._blobs(self.services.data_container).delete_blob(path)

    def overwrite_manifests(self, content: bytes) -> None:
        """See World."""
        container = self._blobs("landfall")
        for name in list(container.list_blob_names(name_starts_with="manifests/")):
            container.upload_blob(name, content, overwrite=True)

    def forget_runs(self) -> None:
        """See World."""
        table = self.account.table_service.get_table_client(f"{TABLE_PREFIX}runs")
        for row in list(table.list_entities(select=["PartitionKey", "RowKey"])):
            if row["RowKey"] != "board":
                table.delete_entity(row["PartitionKey"], row["RowKey"])

    def give_up(self, payload: str) -> None:
        """See World; Event Grid gives up an event too."""
        queue = self.queue(POISON)
        with contextlib.suppress(ResourceExistsError):  # the queue exists already
            queue.create_queue()
        queue.send_message(base64.b64encode(payload.encode()).decode())
        container = self._blobs(DEAD_LETTER_CONTAINER)
        with contextlib.suppress(ResourceExistsError):
            container.create_container()
        container.upload_blob("UPLOADS/2026/11/21/9/1.json", json.dumps([GIVEN_UP]), overwrite=True)

    def leave_upload(self, message: str) -> None:
        """See World."""
        queue = self.queue(SHARD_UPLOADED)
        with contextlib.suppress(ResourceExistsError):  # an earlier message created the queue
            queue.create_queue()
        queue.send_message(base64.b64encode(message.encode()).decode())

    def clear_uploads(self) -> None:
        """See World."""
        self.queue(SHARD_UPLOADED).clear_messages()

    def queue(self, name: str) -> QueueClient:
        """Return a queue as the Functions host reads it."""
        return self.account.queue_service.get_queue_client(name, message_decode_policy=TextBase64DecodePolicy())

    def _blobs(self, container: str) -> Any:
        return self.account.blob_service.get_container_client(container)

    def _connection(self, text: str = "", **options: Any) -> StorageConnection:
        settings = ConnectionSettings(name="Storage", connection_string=text or self.connection)
        return StorageConnection(settings, **options)

    @staticmethod
    def _await_messages(world: AzuriteWorld) -> None:
        """Wait until messages that a dead process had taken are visible again, which takes real time."""
        for name in (POISON, SHARD_UPLOADED, TRAINING_REQUESTED):
            queue = world.queue(name)
            with contextlib.suppress(ResourceNotFoundError):  # the first message creates it
                number = queue.get_queue_properties().approximate_message_count or 0
                wait_until(lambda: len(queue.peek_messages(32)) >= number, what=f"all messages of {name}")  # noqa: B023


def opened(world: World) -> AzuriteWorld:
    """Open the ports of a scenario's world."""
    if not isinstance(world, AzuriteWorld):
        raise TypeError(f"not a world in Azurite: {type(world).__name__}")
    return world.opened()


def serve_queues(world: World) -> None:
    """Handle the messages of all queues; each is deleted once it was handled."""
    if not isinstance(world, AzuriteWorld):
        raise TypeError(f"not a world in Azurite: {type(world).__name__}")

    def request(text: str) -> None:
        handle_request(TrainingRequest.from_json(text), world.services)

    def uploads(text: str) -> None:
        for upload in read_uploads(text):
            handle_upload(upload, world.services)

    _serve(world.queue(TRAINING_REQUESTED), request)
    _serve(world.queue(SHARD_UPLOADED), uploads)
    _serve(world.queue(SHARD_UPLOADED_BULK), uploads)


def _serve(queue: QueueClient, handle: Callable[[str], None]) -> None:
    while message := _first(queue):
        handle(message.content)
        (taken,) = queue.receive_messages(max_messages=1)  # the same message: nothing else takes messages
        queue.delete_message(taken)


def _first(queue: QueueClient) -> Any:
    try:
        return next(iter(queue.peek_messages(1)), None)
    except ResourceNotFoundError:
        return None  # the first message creates the queue
