"""Storage queues for training requests, and for messages that are replayed or continued."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from function_app.adapters.connections import StorageConnection
from function_app.adapters.storage_errors import storage_errors
from function_app.domain.events import TRAINING_REQUESTED, QueuedMessage, TrainingRequest

if TYPE_CHECKING:
    from azure.storage.queue import QueueClient
    from azure.storage.queue import QueueMessage as ReceivedMessage

_DELIVERED_AGAIN = ("MessageNotFound", "PopReceiptMismatch")
_NEVER_EXPIRES = -1
"""Never expire: by default a message disappears after seven days without a trace."""


class StorageRequestQueue:
    """Implements RequestQueue and MessageQueue. The first message creates a missing queue."""

    def __init__(self, connection: StorageConnection, queue: str = TRAINING_REQUESTED) -> None:
        self._connection = connection
        self._queue_name = queue

    def send(self, request: TrainingRequest, *, hidden_for: timedelta = timedelta(0)) -> QueuedMessage:
        """See RequestQueue."""
        return self._send(request.to_json(), hidden_for)

    def send_text(self, text: str) -> None:
        """See MessageQueue. One operation."""
        self._send(text)

    def _send(self, text: str, hidden_for: timedelta = timedelta(0)) -> QueuedMessage:
        """Send a message in Base64, which the Functions host expects by default."""
        from azure.core.exceptions import ResourceNotFoundError

        options = {"time_to_live": _NEVER_EXPIRES, "visibility_timeout": int(hidden_for.total_seconds())}
        with storage_errors(f"send to queue {self._queue_name}"):
            try:
                sent = self._queue.send_message(text, **options)
            except ResourceNotFoundError:
                self._create()
                sent = self._queue.send_message(text, **options)
        return QueuedMessage(text=text, num_deliveries=0, message_id=sent.id, receipt=sent.pop_receipt or "")

    def take(self, limit: int, *, hidden_for: timedelta) -> Sequence[QueuedMessage]:
        """See MessageQueue. One operation. The host treats text that is not Base64 as poison."""
        with storage_errors(f"take messages of queue {self._queue_name}"):
            pages = self._raw_queue.receive_messages(
                messages_per_page=limit, max_messages=limit, visibility_timeout=int(hidden_for.total_seconds())
            )
            return [message for found in pages if (message := _decoded(found)) is not None]

    def delete(self, message: QueuedMessage) -> None:
        """See MessageQueue. One operation."""
        from azure.core.exceptions import HttpResponseError

        with storage_errors(f"delete a message of queue {self._queue_name}"):
            try:
                self._raw_queue.delete_message(message.message_id, message.receipt)
            except HttpResponseError as error:
                if getattr(error, "error_code", None) not in _DELIVERED_AGAIN:
                    raise

    def _create(self) -> None:
        from azure.core.exceptions import ResourceExistsError

        with suppress(ResourceExistsError):  # another sender created it first
            self._queue.create_queue()

    @property
    def _raw_queue(self) -> QueueClient:
        return self._connection.queue_service.get_queue_client(self._queue_name)

    @property
    def _queue(self) -> QueueClient:
        from azure.storage.queue import TextBase64EncodePolicy

        service = self._connection.queue_service
        return service.get_queue_client(self._queue_name, message_encode_policy=TextBase64EncodePolicy())


def _decoded(message: ReceivedMessage) -> QueuedMessage | None:
    try:
        text = base64.b64decode(str(message.content), validate=True).decode()
    except ValueError:
        return None
    return QueuedMessage(
        text=text,
        num_deliveries=message.dequeue_count or 1,
        message_id=message.id,
        receipt=message.pop_receipt or "",
    )
