"""Where the dead are found: poison queues, and the container into which Event Grid writes what it gave up."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import TYPE_CHECKING

from function_app.adapters.connections import StorageConnection
from function_app.adapters.dead_letter_events import Written, events_given_up, unreadable
from function_app.adapters.failures import storage_errors
from function_app.dead_letters import GivenUp

if TYPE_CHECKING:
    from azure.storage.blob import BlobProperties, ContainerClient
    from azure.storage.queue import QueueMessage

POISON_SUFFIX = "-poison"
HOST_TRIES = 5
"""``maxDequeueCount`` of host.json: so often the host has tried what it gives up."""
DEAD_LETTER_CONTAINER = "landfall-dead-letters"
MAX_BLOB_BYTES = 8 << 20
"""Event Grid's events are 1 MB at most, and one blob holds a few."""
LEASE_S = 300
"""How long a message that is being taken is hidden from other sweeps."""


class PoisonQueue:
    """Implements DeadLetterSource over the poison queue of one queue."""

    def __init__(self, connection: StorageConnection, queue: str, lease_s: int = LEASE_S) -> None:
        self._connection = connection
        self._source = queue
        self._lease_s = lease_s

    def given_up(self, *, limit: int) -> Iterator[GivenUp]:
        """See DeadLetterSource. One operation for every 32 messages, and one for each of them."""
        from azure.core.exceptions import ResourceNotFoundError

        name = self._source + POISON_SUFFIX
        with storage_errors(f"take from queue {name}"):
            queue = self._connection.queue_service.get_queue_client(name)
            messages = queue.receive_messages(
                messages_per_page=min(32, limit), visibility_timeout=self._lease_s, max_messages=limit
            )
            try:
                for message in messages:
                    yield self._given_up(message)
                    queue.delete_message(message)
            except ResourceNotFoundError:
                return  # the host makes the queue for the first that dies

    def _given_up(self, message: QueueMessage) -> GivenUp:
        from function_app.clock import utcnow

        payload, error = _decoded(message.content)
        return GivenUp(
            source=self._source,
            payload=payload,
            identity=payload,
            error=error,
            tries=1 if error else HOST_TRIES,
            died_at=message.inserted_on or utcnow(),
            death=message.id,
        )


def _decoded(content: str) -> tuple[str, str]:
    """Return a message's text and what is wrong with it; one that is not encoded is taken as it is."""
    try:
        return base64.b64decode(content, validate=True).decode(), ""
    except ValueError:
        return content, "the message is not base64, as host.json asks for, or no text; a replay encodes it"


class DeadLetterContainer:
    """Implements DeadLetterSource over Event Grid's blobs, ``SUBSCRIPTION/year/month/day/hour/id.json``."""

    def __init__(self, connection: StorageConnection, container: str = DEAD_LETTER_CONTAINER) -> None:
        self._connection = connection
        self._container_name = container

    def given_up(self, *, limit: int) -> Iterator[GivenUp]:
        """See DeadLetterSource. One operation for the list, two for each blob.

        A blob that a row cannot hold stays where it is: its letter says so, and nothing of it is lost.
        """
        from azure.core.exceptions import ResourceNotFoundError

        with storage_errors(f"read the dead letters of container {self._container_name}"):
            container = self._connection.blob_service.get_container_client(self._container_name)
            try:
                for number, blob in enumerate(container.list_blobs(), start=1):
                    yield from _taken(container, blob)
                    if number == limit:
                        return
            except ResourceNotFoundError:
                return  # no container: the deployment has none, or a sweep at the same time was quicker


def _taken(container: ContainerClient, blob: BlobProperties) -> Iterator[GivenUp]:
    name, written = f"blob {blob.name}", Written(at=blob.last_modified, etag=blob.etag)
    if blob.size > MAX_BLOB_BYTES:
        error = f"{name} should be at most {MAX_BLOB_BYTES} bytes, is {blob.size}: it stays in its container"
        yield unreadable(blob.name, error, written)
        return
    text = _text(container, blob)
    whole = True
    for given_up in events_given_up(text, name=name, written=written):
        whole = whole and given_up.is_whole
        yield given_up
    if whole:
        container.delete_blob(blob.name)


def _text(container: ContainerClient, blob: BlobProperties) -> str:
    if not blob.size:
        return ""  # an empty blob has no byte 0 to begin with
    content: bytes = container.download_blob(blob.name, 0, MAX_BLOB_BYTES).readall()
    return content.decode(errors="replace")
