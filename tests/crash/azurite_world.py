"""The stories' world with real storage: tables, queues and blobs of an account of its own in Azurite.

Azure ML, the recipients and the clock stay doubles, which outlive their process in a file.
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

from function_app.adapters.blobs import BlobRejectedCopies, BlobShardStore
from function_app.adapters.connections import ConnectionSettings, StorageConnection
from function_app.adapters.dead_letters import DEAD_LETTER_CONTAINER, DeadLetterContainer, PoisonQueue
from function_app.adapters.documents import BlobDocumentStore
from function_app.adapters.queues import StorageRequestQueue
from function_app.adapters.tables import TABLE_PREFIX, TableLedger
from function_app.domain.clock import utcnow
from function_app.domain.events import CREATED, SHARD_UPLOADED, TRAINING_REQUESTED, TrainingRequest, read_uploads
from function_app.ingest.uploads import handle_upload
from function_app.runs.submission import handle_request
from function_app.testing.stores import MemoryRejectedCopies, MemoryShardStore
from local_azure.processes import wait_until
from tests.support.world import World

POISON = f"{SHARD_UPLOADED}-poison"
GIVEN_UP = {"id": "1", "eventType": CREATED, "subject": "/blobServices/default/containers/others/blobs/a/b/c"}
HIDDEN_S = 5
"""For so long a message is hidden from others: taking it takes less, and after a death nobody waits long."""


@dataclass(kw_only=True)
class AzuriteWorld(World):
    """A world whose ports to storage are opened anew by each process, see ``opened``."""

    connection: str
    """The account's connection string."""
    app_connection: str = ""
    """The app's own, where it reaches the account through something that fails: the SDK then repeats once."""
    storage: StorageConnection | None = field(default=None, init=False)
    """None but in a process that has opened the world."""
    app_storage: StorageConnection | None = field(default=None, init=False)
    """The app's own, which may be the same."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.clock.now = utcnow()  # blobs have the time at which they land

    @property
    def account(self) -> StorageConnection:
        """The open connection."""
        if self.storage is None:
            raise ValueError("the world should be opened by this process")
        return self.storage

    def create(self) -> None:
        """Make what the data owner has: the container of shards."""
        with contextlib.closing(self._connection()) as storage:
            storage.blob_service.create_container(self.services.data_container)

    def opened(self) -> AzuriteWorld:
        """Return the world with real ports, but for those in whose place a story has put its own."""
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
        found.run_outputs = services.run_outputs  # type: ignore[assignment]  # written to as the double is
        self._await_poison(found)
        return found

    def close(self) -> None:
        """Close what this process has opened."""
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
        with contextlib.suppress(ResourceNotFoundError):  # the story may be told again
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
        """See World; Event Grid gives something up, too."""
        queue = self.queue(POISON)
        with contextlib.suppress(ResourceExistsError):  # made for the first one
            queue.create_queue()
        queue.send_message(base64.b64encode(payload.encode()).decode())
        container = self._blobs(DEAD_LETTER_CONTAINER)
        with contextlib.suppress(ResourceExistsError):
            container.create_container()
        container.upload_blob("UPLOADS/2026/11/21/9/1.json", json.dumps([GIVEN_UP]), overwrite=True)

    def clear_uploads(self) -> None:
        """See World."""
        self.queue(SHARD_UPLOADED).clear_messages()

    def queue(self, name: str) -> QueueClient:
        """Return a queue as the host reads it."""
        return self.account.queue_service.get_queue_client(name, message_decode_policy=TextBase64DecodePolicy())

    def _blobs(self, container: str) -> Any:
        return self.account.blob_service.get_container_client(container)

    def _connection(self, text: str = "", **options: Any) -> StorageConnection:
        settings = ConnectionSettings(name="Storage", connection_string=text or self.connection)
        return StorageConnection(settings, **options)

    @staticmethod
    def _await_poison(world: AzuriteWorld) -> None:
        """Wait until nothing is hidden that a dead process has taken: in the stories that takes no time."""
        queue = world.queue(POISON)
        with contextlib.suppress(ResourceNotFoundError):  # nothing died
            number = queue.get_queue_properties().approximate_message_count or 0
            wait_until(lambda: len(queue.peek_messages(32)) >= number, what="all dead messages to be seen")


def opened(world: World) -> AzuriteWorld:
    """Open the ports of a story's world."""
    if not isinstance(world, AzuriteWorld):
        raise TypeError(f"a world in Azurite should be opened, was {type(world).__name__}")
    return world.opened()


def serve_queues(world: World) -> None:
    """Be the queues' other end: a message stays until it was handled."""
    if not isinstance(world, AzuriteWorld):
        raise TypeError(f"a world with queues should be served, was {type(world).__name__}")

    def request(text: str) -> None:
        handle_request(TrainingRequest.from_json(text), world.services)

    def uploads(text: str) -> None:
        for upload in read_uploads(text):
            handle_upload(upload, world.services)

    _serve(world.queue(TRAINING_REQUESTED), request)
    _serve(world.queue(SHARD_UPLOADED), uploads)


def _serve(queue: QueueClient, handle: Callable[[str], None]) -> None:
    while message := _first(queue):
        handle(message.content)
        (taken,) = queue.receive_messages(max_messages=1)  # nobody else is here to take another one
        queue.delete_message(taken)


def _first(queue: QueueClient) -> Any:
    try:
        return next(iter(queue.peek_messages(1)), None)
    except ResourceNotFoundError:
        return None  # the first message makes the queue
