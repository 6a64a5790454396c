"""A storage queue's message as a function receives it."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Literal

from azure.storage.queue import QueueMessage

from local_azure.functions_host.worker_messages import TypedData


class UndecodableMessageError(ValueError):
    """The message is not in the encoding that host.json names; it can never be processed."""


def decode_body(content: str, encoding: Literal["base64", "none"]) -> TypedData:
    """The message's text, or its bytes where they are no text. Raises UndecodableMessageError."""
    if encoding == "none":
        return TypedData(string=content)
    try:
        body = base64.b64decode(content, validate=True)
    except ValueError as error:  # also for text that is not ASCII
        raise UndecodableMessageError(
            f"it should be base64 (extensions.queues.messageEncoding in host.json), starts with {content[:60]!r}"
        ) from error
    try:
        return TypedData(string=body.decode("utf-8"))
    except UnicodeDecodeError:
        return TypedData(bytes=body)


def message_metadata(message: QueueMessage) -> dict[str, TypedData]:
    """The trigger metadata from which `func.QueueMessage` is made."""
    moments = {
        "InsertionTime": message.inserted_on,
        "ExpirationTime": message.expires_on,
        "NextVisibleTime": message.next_visible_on,
    }
    metadata = {name: TypedData(string=_utc(moment)) for name, moment in moments.items() if moment is not None}
    metadata["Id"] = TypedData(string=message.id)
    metadata["PopReceipt"] = TypedData(string=message.pop_receipt)
    metadata["DequeueCount"] = TypedData(json=str(message.dequeue_count))
    return metadata


def _utc(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S+00:00")
