"""Sources of dead letters: poison queues, and the container to which Event Grid writes undelivered events."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from function_app.adapters.connections import StorageConnection
from function_app.adapters.storage_errors import storage_errors
from function_app.adapters.tables.row_limits import MAX_PAYLOAD_CHARS
from function_app.domain.events import RUN_CHANGED, SHARD_UPLOADED
from function_app.domain.records import Undelivered

if TYPE_CHECKING:
    from azure.storage.blob import BlobProperties, ContainerClient
    from azure.storage.queue import QueueMessage

POISON_SUFFIX = "-poison"
HOST_TRIES = 5
"""``maxDequeueCount`` of host.json: the number of tries for each message."""
DEAD_LETTER_CONTAINER = "landfall-dead-letters"
MAX_BLOB_BYTES = 8 << 20
"""Maximum size of a blob: it contains a few events, and Event Grid's events have 1 MB at most."""
LEASE_S = 300
"""How long a message is hidden from other sweeps while it is moved."""


class PoisonQueue:
    """Implements DeadLetterSource over the poison queue of one queue."""

    def __init__(self, connection: StorageConnection, queue: str, lease_s: int = LEASE_S) -> None:
        self._connection = connection
        self._source = queue
        self._lease_s = lease_s

    def undelivered(self, *, limit: int) -> Iterator[Undelivered]:
        """See DeadLetterSource. One operation for every 32 messages, and one for each message."""
        from azure.core.exceptions import ResourceNotFoundError

        name = self._source + POISON_SUFFIX
        with storage_errors(f"take from queue {name}"):
            queue = self._connection.queue_service.get_queue_client(name)
            messages = queue.receive_messages(
                messages_per_page=min(32, limit), visibility_timeout=self._lease_s, max_messages=limit
            )
            try:
                for message in messages:
                    yield self._undelivered(message)
                    queue.delete_message(message)
            except ResourceNotFoundError:
                return  # The host creates the queue with the first poison message.

    def _undelivered(self, message: QueueMessage) -> Undelivered:
        from function_app.ports import utcnow

        payload, error = _decoded(message.content)
        return Undelivered(
            source=self._source,
            payload=payload,
            identity=payload,
            error=error,
            tries=1 if error else HOST_TRIES,
            died_at=message.inserted_on or utcnow(),
            death=message.id,
        )


def _decoded(content: str) -> tuple[str, str]:
    """Return a message's text and any problem with it; text without encoding is returned unchanged."""
    try:
        return base64.b64decode(content, validate=True).decode(), ""
    except ValueError:
        return content, "the message is not base64-encoded text, as host.json requires; a replay encodes it"


class DeadLetterContainer:
    """Implements DeadLetterSource over Event Grid's blobs, ``SUBSCRIPTION/year/month/day/hour/id.json``."""

    def __init__(self, connection: StorageConnection, container: str = DEAD_LETTER_CONTAINER) -> None:
        self._connection = connection
        self._container_name = container

    def undelivered(self, *, limit: int) -> Iterator[Undelivered]:
        """See DeadLetterSource. One operation for the list, and two for each blob.

        A blob that is too large for a row stays in the container, and its dead letter says so.
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
                return  # There is no container, or a concurrent sweep was faster.


def _taken(container: ContainerClient, blob: BlobProperties) -> Iterator[Undelivered]:
    name, written = f"blob {blob.name}", Written(at=blob.last_modified, etag=blob.etag)
    if blob.size > MAX_BLOB_BYTES:
        error = f"{name} has {blob.size} bytes; at most {MAX_BLOB_BYTES} are read, so it stays in its container"
        yield unreadable(blob.name, error, written)
        return
    text = _downloaded(container, blob)
    whole = True
    for undelivered in undelivered_events(text, name=name, written=written):
        whole = whole and undelivered.is_whole
        yield undelivered
    if whole:
        container.delete_blob(blob.name)


def _downloaded(container: ContainerClient, blob: BlobProperties) -> str:
    if not blob.size:
        return ""  # An empty blob has no byte 0.
    content: bytes = container.download_blob(blob.name, 0, MAX_BLOB_BYTES).readall()
    return content.decode(errors="replace")


MAX_EVENTS = 5000
"""Maximum events in one blob, above Event Grid's own limit for a batch."""
UNKNOWN = "event-grid"
"""Source name of content that is not a known event."""

_MEMBERS = frozenset(
    {"deadletterreason", "deliveryattempts", "lastdeliveryoutcome", "publishtime", "lastdeliveryattempttime"}
)
_MAX_TEXT_CHARS = 200


@dataclass(frozen=True, kw_only=True)
class Written:
    """The time at which a blob was written, and the ETag of that content."""

    at: datetime
    etag: str


def undelivered_events(text: str, *, name: str, written: Written) -> Iterator[Undelivered]:
    """Yield the events of one blob. A blob that cannot be understood is yielded as one dead letter."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        yield unreadable(text, f"{name} is not a JSON array of events: {error}", written)
        return
    events = document if isinstance(document, list) else [document]
    if len(events) > MAX_EVENTS or not all(isinstance(event, Mapping) for event in events):
        yield unreadable(text, f"{name} does not hold 1 to {MAX_EVENTS} events", written)
        return
    for event in events:
        yield _undelivered(event, written)


def unreadable(text: str, error: str, written: Written) -> Undelivered:
    """Return the dead letter of a blob that Event Grid did not write, or that cannot be read."""
    return Undelivered(
        source=UNKNOWN,
        payload=text,
        identity="",
        error=error,
        tries=0,
        died_at=written.at,
        death=written.etag,
        is_whole=False,
    )


def _undelivered(event: Mapping[str, Any], written: Written) -> Undelivered:
    said = {name.lower(): value for name, value in event.items() if name.lower() in _MEMBERS}
    own = {name: value for name, value in event.items() if name.lower() not in _MEMBERS}
    payload = json.dumps(own, sort_keys=True)
    reason, outcome = _text(said.get("deadletterreason")), _text(said.get("lastdeliveryoutcome"))
    tries = said.get("deliveryattempts")
    return Undelivered(
        source=_source(_text(event.get("eventType") or event.get("type"))),
        payload=payload,
        identity=_text(event.get("id")),
        error=f"Event Grid gave up ({reason or 'no reason given'}), last outcome: {outcome or 'not stated'}",
        tries=tries if isinstance(tries, int) and 0 <= tries <= MAX_EVENTS else 0,
        died_at=_time(said.get("lastdeliveryattempttime")) or written.at,
        death=written.etag,
        is_whole=len(payload) <= MAX_PAYLOAD_CHARS,
    )


def _source(event_type: str) -> str:
    if event_type.startswith("Microsoft.Storage."):
        return SHARD_UPLOADED
    if event_type.startswith("Microsoft.MachineLearningServices.Run"):
        return RUN_CHANGED
    return event_type or UNKNOWN


def _text(value: object) -> str:
    return value[:_MAX_TEXT_CHARS] if isinstance(value, str) else ""


def _time(value: object) -> datetime | None:
    """Read a time in Event Grid's format, with up to seven decimals of a second; None if it is malformed."""
    try:
        time = datetime.fromisoformat(_text(value))
    except ValueError:
        return None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
