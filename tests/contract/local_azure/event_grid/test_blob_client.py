"""Operations of the real blob client cause the same events as in the service."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import ResourceExistsError, ResourceModifiedError

from tests.contract.local_azure.event_grid.conftest import Uploads
from tests.support.processes import REPOSITORY

pytestmark = [pytest.mark.azurite, pytest.mark.xdist_group("event_grid")]

SAMPLES = REPOSITORY / "tests" / "events"


def _facts(event: dict[str, Any]) -> tuple[str, str, int]:
    return event["data"]["api"], event["data"]["eTag"], event["data"]["contentLength"]


def _etag(uploads: Uploads, name: str) -> str:
    return str(uploads.container.get_blob_client(name).get_blob_properties().etag).strip('"')


def test_a_small_upload_is_one_put_blob(uploads: Uploads) -> None:
    """There is one message, with the ETag without quotes and the length of the content."""
    uploads.container.upload_blob("digits/v1/train-00000-of-00001", b"x" * 100)

    (event,) = uploads.events()
    assert ("PutBlob", _etag(uploads, "digits/v1/train-00000-of-00001"), 100) == _facts(event)


def test_a_large_upload_is_one_put_block_list(uploads: Uploads) -> None:
    """Blocks cause no events; their list causes one."""
    uploads.container.upload_blob("large", b"x" * 10_000, max_concurrency=2)

    (event,) = uploads.events()
    assert ("PutBlockList", _etag(uploads, "large"), 10_000) == _facts(event)


def test_a_copy_is_one_copy_blob(uploads: Uploads) -> None:
    """The event has the copy's ETag and the length of its source."""
    source = uploads.container.upload_blob("source", b"x" * 7)
    uploads.container.get_blob_client("copy").start_copy_from_url(source.url)

    _, event = uploads.events(2)
    assert ("CopyBlob", _etag(uploads, "copy"), 7) == _facts(event)


def test_an_overwrite_is_an_event_of_its_own(uploads: Uploads) -> None:
    """Two writes of one blob are two events; the second has a new ETag and a higher sequencer."""
    uploads.container.upload_blob("same", b"first")
    (first,) = uploads.events()
    uploads.container.upload_blob("same", b"second!", overwrite=True)
    uploads.container.delete_blob("the-mark")
    (second,) = uploads.events()

    assert ("PutBlob", _etag(uploads, "same"), 7) == _facts(second)
    assert first["data"]["eTag"] != second["data"]["eTag"]
    assert first["data"]["sequencer"] < second["data"]["sequencer"]


def test_writes_that_fail_and_writes_beside_the_content_raise_nothing(uploads: Uploads) -> None:
    """409 and 412, metadata, properties, a snapshot, a lease and a block that is never listed."""
    blob = uploads.container.upload_blob("one", b"1")
    with pytest.raises(ResourceExistsError):
        blob.upload_blob(b"2")
    with pytest.raises(ResourceModifiedError):
        blob.upload_blob(b"2", overwrite=True, etag='"0x1"', match_condition=MatchConditions.IfNotModified)
    blob.set_blob_metadata({"a": "b"})
    blob.set_http_headers()
    blob.create_snapshot()
    blob.acquire_lease(15).release()
    uploads.container.get_blob_client("never").stage_block("MDAwMQ==", b"x")

    assert ["PutBlob"] == [event["data"]["api"] for event in uploads.events()]


def test_another_container_and_another_account_raise_nothing_here(uploads: Uploads) -> None:
    """The subscription's prefix ends with a slash, so a container with a longer name does not match."""
    longer = uploads.service.create_container(f"{uploads.container.container_name}x")
    longer.upload_blob("a", b"a")
    uploads.container.upload_blob("b", b"b")

    (event,) = uploads.events()
    assert event["subject"].endswith("/blobs/b")


NAMES = ["a b/c+d", "100%", "%20", "grüße/日本", "x#y?z&=", "it's (1)~!*", "a//b"]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_encoded_as_in_the_blobs_own_url(uploads: Uploads, name: str) -> None:
    """Subject and URL have the percent-encoded name; a client for the decoded URL opens the same blob."""
    blob = uploads.container.upload_blob(name, b"x")

    (event,) = uploads.events()
    encoded = blob.url.removeprefix(f"{uploads.container.url}/")
    container = uploads.container.container_name
    assert blob.url == event["data"]["url"]
    assert f"/blobServices/default/containers/{container}/blobs/{encoded}" == event["subject"]


def test_a_hundred_uploads_are_as_many_messages(uploads: Uploads) -> None:
    """Each blob has exactly one message, with its own length and ETag."""
    sent = {}
    for index in range(100):
        blob = uploads.container.upload_blob(f"shard-{index:05}", b"x" * index)
        sent[blob.url] = (blob.get_blob_properties().etag.strip('"'), index)

    events = uploads.events(100)
    assert 100 == len(events)
    assert sent == {event["data"]["url"]: (event["data"]["eTag"], event["data"]["contentLength"]) for event in events}


def _shape(value: Any) -> Any:
    """Names and types, at any depth."""
    return {key: _shape(item) for key, item in value.items()} if isinstance(value, dict) else type(value).__name__


def _put_blob(uploads: Uploads) -> None:
    uploads.container.upload_blob("shape", b"x")


def _put_block_list(uploads: Uploads) -> None:
    uploads.container.upload_blob("shape", b"x" * 5000)


def _copy(uploads: Uploads) -> None:
    source = uploads.container.upload_blob("source", b"x")
    uploads.container.get_blob_client("shape").start_copy_from_url(source.url)


@pytest.mark.parametrize(
    ("sample", "write"),
    [
        ("blob_created_put_blob", _put_blob),
        ("blob_created_put_block_list", _put_block_list),
        ("blob_created_copy_blob", _copy),
        ("blob_created_encoded_name", _put_blob),
    ],
)
def test_events_have_the_shape_of_the_services(
    uploads: Uploads, sample: str, write: Callable[[Uploads], None]
) -> None:
    """The fields and types equal those of a recorded event, and so does the kind of topic."""
    (expected,) = json.loads((SAMPLES / f"{sample}.json").read_text(encoding="utf-8"))
    write(uploads)

    event = uploads.events(2 if write is _copy else 1)[-1]
    assert _shape(expected) == _shape(event)
    assert expected["topic"] == event["topic"]
    assert len(expected["eventTime"]) == len(event["eventTime"])


def test_a_delete_reaches_only_subscriptions_that_include_it(uploads: Uploads) -> None:
    """BlobDeleted is on the topic; a subscription that includes only BlobCreated does not receive it."""
    uploads.container.upload_blob("gone", b"x")
    uploads.container.delete_blob("gone")
    uploads.events(0)

    received = [entry["event"] for entry in uploads.grid.get("/topics/storage/received")]
    prefix = f"/blobServices/default/containers/{uploads.container.container_name}/"
    received = [event for event in received if event["subject"].startswith(prefix)]
    (deleted,) = [event for event in received if event["eventType"] == "Microsoft.Storage.BlobDeleted"]
    (sample,) = json.loads((SAMPLES / "blob_deleted.json").read_text(encoding="utf-8"))
    assert "DeleteBlob" == deleted["data"]["api"]
    assert set(deleted["data"]) == set(sample["data"]) - {"eTag", "contentLength"}
