"""Storage queues: training requests, and messages that are replayed or continued."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from function_app.adapters.connections import StorageConnection
from function_app.adapters.storage_errors import storage_errors
from function_app.domain.events import TRAINING_REQUESTED, TrainingRequest

if TYPE_CHECKING:
    from azure.storage.queue import QueueClient

_NEVER_EXPIRES = -1
"""By default a message expires after seven days without a trace."""


class StorageRequestQueue:
    """Implements RequestQueue and MessageQueue. The first message creates the queue where it is missing."""

    def __init__(self, connection: StorageConnection, queue: str = TRAINING_REQUESTED) -> None:
        self._connection = connection
        self._queue_name = queue

    def send(self, request: TrainingRequest) -> None:
        """See RequestQueue."""
        self.send_text(request.to_json())

    def send_text(self, text: str) -> None:
        """See MessageQueue. One operation. Base64 is what the Functions host decodes by default."""
        from azure.core.exceptions import ResourceNotFoundError

        with storage_errors(f"send to queue {self._queue_name}"):
            try:
                self._queue.send_message(text, time_to_live=_NEVER_EXPIRES)
            except ResourceNotFoundError:
                self._create()
                self._queue.send_message(text, time_to_live=_NEVER_EXPIRES)

    def _create(self) -> None:
        from azure.core.exceptions import ResourceExistsError

        with contextlib.suppress(ResourceExistsError):  # another sender created it first
            self._queue.create_queue()

    @property
    def _queue(self) -> QueueClient:
        from azure.storage.queue import TextBase64EncodePolicy

        service = self._connection.queue_service
        return service.get_queue_client(self._queue_name, message_encode_policy=TextBase64EncodePolicy())
