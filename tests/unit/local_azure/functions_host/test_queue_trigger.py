from __future__ import annotations

import base64
from datetime import UTC, datetime

import pytest
from azure.storage.queue import QueueMessage

from local_azure.functions_host.queue_trigger import UndecodableMessageError, decode_body, message_metadata


def test_text_arrives_as_text_and_bytes_as_bytes() -> None:
    """Base64 is decoded; what is not UTF-8 stays bytes."""
    text = decode_body(base64.b64encode("grüße".encode()).decode(), "base64")
    binary = decode_body(base64.b64encode(b"\xff\x00").decode(), "base64")

    assert ("string", "grüße") == (text.WhichOneof("data"), text.string)
    assert ("bytes", b"\xff\x00") == (binary.WhichOneof("data"), binary.bytes)


def test_without_an_encoding_the_content_is_the_body() -> None:
    """The option is in host.json."""
    assert "{not base64}" == decode_body("{not base64}", "none").string


@pytest.mark.parametrize("content", ["{not base64}", "YQ", "ü"])
def test_what_is_not_base64_is_refused(content: str) -> None:
    """The error names the option that expects it, and has the beginning of the message."""
    with pytest.raises(UndecodableMessageError, match="it is not base64"):
        decode_body(content, "base64")


def test_metadata_has_the_names_that_the_runtime_reads() -> None:
    """Times in UTC, the number of tries as JSON."""
    message = QueueMessage(content="", id="m1", dequeue_count=3, pop_receipt="r1")
    message.inserted_on = datetime(2026, 11, 20, 10, tzinfo=UTC)

    metadata = message_metadata(message)

    assert {"Id", "PopReceipt", "DequeueCount", "InsertionTime"} == set(metadata)
    assert "2026-11-20T10:00:00+00:00" == metadata["InsertionTime"].string
    assert "3" == metadata["DequeueCount"].json
