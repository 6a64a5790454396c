"""What Event Grid writes for events that it gave up, read."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from function_app.adapters.dead_letters import UNKNOWN, Written, undelivered_events
from function_app.domain.events import RUN_CHANGED, SHARD_UPLOADED
from function_app.domain.records import Undelivered
from tests.support.ledger_records import NOON

STORAGE_EVENT = {
    "topic": "/subscriptions/s/resourceGroups/r/providers/Microsoft.Storage/storageAccounts/landfalldata",
    "subject": "/blobServices/default/containers/datasets/blobs/digits/v1/train-00000-of-00002.tfrecord",
    "eventType": "Microsoft.Storage.BlobCreated",
    "id": "8fec1b2a-e01e-002b-2f0d-5e2f3c06b1a4",
    "data": {"api": "PutBlob", "eTag": "0x8D"},
    "dataVersion": "",
    "metadataVersion": "1",
    "eventTime": "2026-11-20T10:00:00.0000000Z",
}
DEAD_MEMBERS = {
    "deadLetterReason": "MaxDeliveryAttemptsExceeded",
    "deliveryAttempts": 30,
    "lastDeliveryOutcome": "TimedOut",
    "publishTime": "2026-11-20T10:00:01.1234567Z",
    "lastDeliveryAttemptTime": "2026-11-20T11:00:00.1234567Z",
}


def read(document: object) -> list[Undelivered]:
    """The events of a blob that was written at noon."""
    text = document if isinstance(document, str) else json.dumps(document)
    return list(undelivered_events(text, name="blob X", written=Written(at=NOON, etag="0x1")))


def test_an_event_is_returned_without_what_was_added_when_it_died() -> None:
    """The payload is what was published; reason, tries and time are read off."""
    (found,) = read([STORAGE_EVENT | DEAD_MEMBERS])
    assert STORAGE_EVENT == json.loads(found.payload)
    assert (SHARD_UPLOADED, STORAGE_EVENT["id"], 30) == (found.source, found.identity, found.tries)
    assert "Event Grid gave up (MaxDeliveryAttemptsExceeded), last outcome: TimedOut" == found.error
    assert datetime(2026, 11, 20, 11, 0, 0, 123456, tzinfo=UTC) == found.died_at


def test_a_cloud_event_is_read_alike() -> None:
    """Its extensions are lower case."""
    event = {"specversion": "1.0", "type": "Microsoft.MachineLearningServices.RunCompleted", "id": "r", "data": {}}
    (found,) = read([event | {name.lower(): value for name, value in DEAD_MEMBERS.items()}])
    assert (RUN_CHANGED, event, 30) == (found.source, json.loads(found.payload), found.tries)


def test_a_blob_may_hold_several_events() -> None:
    """Each is a letter of its own."""
    events = [STORAGE_EVENT | DEAD_MEMBERS | {"id": str(number)} for number in range(3)]
    assert ["0", "1", "2"] == [found.identity for found in read(events)]


def test_missing_members_leave_what_is_known() -> None:
    """The time is the blob's then."""
    (found,) = read([{"eventType": "Contoso.Thing"}])
    assert ("Contoso.Thing", 0, NOON) == (found.source, found.tries, found.died_at)


@pytest.mark.parametrize("document", ["", "no JSON", "[1]", '["x"]', "7"])
def test_what_is_no_list_of_events_is_one_letter_that_nothing_replays(document: str) -> None:
    """It stays where it is, and the letter says what was expected."""
    (found,) = read(document)
    assert (UNKNOWN, False, True) == (found.source, found.is_whole, found.error.startswith("blob X "))


@pytest.mark.parametrize("value", [None, 5, "yesterday", {"a": 1}, "x" * 10_000])
def test_wrong_types_are_no_errors(value: object) -> None:
    """Blobs in the container may have been written by another program."""
    (found,) = read([STORAGE_EVENT | dict.fromkeys(DEAD_MEMBERS, value)])
    assert NOON == found.died_at
