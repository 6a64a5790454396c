"""Events and messages: recorded ones of uploads and runs, training requests, and payloads that are none of these."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from azure.functions.queue import QueueMessage

from function_app import functions
from function_app.domain.errors import InvalidEventError
from function_app.domain.events import (
    CREATED,
    MAX_EVENTS,
    MAX_PAYLOAD_BYTES,
    MAX_REQUEST_BYTES,
    TrainingRequest,
    read_run_id,
    read_run_ids,
    read_uploads,
)
from function_app.functions import build_app
from function_app.ingest.uploads import handle_upload
from shard_validation import DataRequirements, ShardSource, ShardVerdict, validate_shard
from tests.support.world import VERSION, World, shard_content

EVENTS = Path(__file__).resolve().parents[3] / "events"
PATH = "digits/2026-11-20/train-00003-of-00008.tfrecord"


def recorded(name: str) -> bytes:
    """A recorded payload."""
    return (EVENTS / f"{name}.json").read_bytes()


@pytest.mark.parametrize(
    ("name", "api"),
    [
        ("blob_created_put_blob", "PutBlob"),
        ("blob_created_put_block_list", "PutBlockList"),
        ("blob_created_same_write_other_id", "PutBlockList"),
        ("blob_created_copy_blob", "CopyBlob"),
        ("blob_created_hns_flush_with_close", "FlushWithClose"),
        ("blob_created_hns_create_file_zero_bytes", "CreateFile"),
        ("blob_created_cloudevent", "PutBlob"),
    ],
)
def test_a_recorded_event_names_container_and_path(name: str, api: str) -> None:
    """Both envelopes, hosts blob and dfs, single and in a list."""
    (upload,) = read_uploads(recorded(name))
    found = (upload.event_type, upload.api, upload.container, upload.path, upload.is_repeated)
    assert (CREATED, api, "datasets", PATH, False) == found


def test_the_size_of_an_upload_is_a_whole_number_or_unknown() -> None:
    """It decides only how shards are scheduled, so a wrong one is no error."""
    event = json.loads(recorded("blob_created_put_blob"))
    event = event[0] if isinstance(event, list) else event
    sizes = {}
    for stated in (524_288, "524288", None):
        event["data"]["contentLength"] = stated
        sizes[stated] = read_uploads(json.dumps(event))[0].size_bytes
    assert {524_288: 524_288, "524288": None, None: None} == sizes


def test_a_percent_encoded_path_is_decoded_once() -> None:
    """A percent sign in the name itself stays one."""
    (upload,) = read_uploads(recorded("blob_created_encoded_name"))
    assert "digits/2026 11 20/train-00003-of-00008%2B.tfrecord" == upload.path


@pytest.mark.parametrize("path", sorted(EVENTS.glob("blob_*.json")), ids=lambda path: path.stem)
def test_no_recorded_event_ends_as_poison(path: Path) -> None:
    """What Event Grid really sends is judged or suppressed."""
    world = World()
    world.shards.put(PATH, shard_content(1))
    for upload in read_uploads(path.read_bytes()):
        handle_upload(upload, world.services)
    assert 1 == sum(len(lines) for lines in world.ledger.history_rows.values())


def test_several_events_in_one_message_are_all_read() -> None:
    """Event Grid batches events if it is set up to."""
    events = [json.loads(recorded(f"blob_created_{name}"))[0] for name in ("put_blob", "copy_blob")]
    assert ["PutBlob", "CopyBlob"] == [upload.api for upload in read_uploads(json.dumps(events))]


@pytest.mark.parametrize(("num_deliveries", "num_stored"), [(1, 0), (2, 1)])
def test_only_a_repeated_delivery_records_that_a_short_shard_was_begun(
    monkeypatch: pytest.MonkeyPatch, num_deliveries: int, num_stored: int
) -> None:
    """A first delivery of a short shard costs nothing more; of a second one it is written down that it began."""
    world = World()
    world.shards.put(PATH, shard_content(1))
    stored: list[int] = []

    def validate(source: ShardSource, requirements: DataRequirements) -> ShardVerdict:
        stored.append(len(world.documents.documents))
        return validate_shard(source, requirements)

    monkeypatch.setattr(functions, "services", lambda: replace(world.services, validate=validate))
    (function,) = (f for f in build_app().get_functions() if f.get_function_name() == "shard_uploaded")
    function.get_user_function()(QueueMessage(body=recorded("blob_created_put_blob"), dequeue_count=num_deliveries))
    assert ([num_stored], {}) == (stored, world.documents.documents)


def event(**changes: Any) -> dict[str, Any]:
    """A recorded event with members exchanged, or taken out where they are None."""
    (members,) = json.loads(recorded("blob_created_put_blob"))
    return {name: value for name, value in (members | changes).items() if value is not None}


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b"", "payload is not JSON"),
        (b"\xff\xfe", "payload is not JSON"),
        (b"[" * 100_000, "payload is not JSON"),
        (b"x" * (MAX_PAYLOAD_BYTES + 1), f"payload has {MAX_PAYLOAD_BYTES + 1} bytes"),
        (b"[]", "payload holds 0 events"),
        (b"[{}]", "data is not an object"),
        (b"[1]", "an event is of type int, not a JSON object"),
        (json.dumps(event(subject=None)).encode(), "event: subject is not a text"),
        (json.dumps(event(subject="/blobServices/default")).encode(), "subject is not /blobServices/default/"),
        (json.dumps(event(subject=["x"])).encode(), "event: subject is not a text"),
        (json.dumps(event(eventType=None)).encode(), "event: eventType is not a text"),
        (json.dumps([event()] * (MAX_EVENTS + 1)).encode(), f"payload holds {MAX_EVENTS + 1} events"),
    ],
)
def test_what_cannot_be_understood_raises_and_ends_as_poison(payload: bytes, message: str) -> None:
    """The message says what was expected."""
    with pytest.raises(InvalidEventError) as caught:
        read_uploads(payload)
    assert message in str(caught.value)


OURS = "landfall-digits-2026-11-20-1f3a9c2b7d5e-a1"


@pytest.mark.parametrize("path", sorted(EVENTS.glob("run_*.json")), ids=lambda path: path.stem)
def test_every_recorded_event_names_its_run(path: Path) -> None:
    """Status outside data, in any case, fields that are null: all the same to us."""
    (event,) = json.loads(path.read_bytes())
    expected = "calm_river_x1b2" if "another_project" in path.name else OURS
    assert expected == read_run_id(event["subject"], event["data"])


def test_a_message_names_each_of_its_runs_once() -> None:
    """Event Grid writes one event in a message; a replayed dead letter may hold several."""
    (event,) = json.loads((EVENTS / "run_completed.json").read_bytes())
    other = event | {"subject": "experiments/x/runs/other", "data": None}
    assert [OURS] == read_run_ids(json.dumps(event))
    assert [OURS, "other"] == read_run_ids(json.dumps([event, other, event]).encode())


@pytest.mark.parametrize("payload", ["", "no JSON", "[]", "[1]", '"text"', "null", '{"subject": 7}'])
def test_a_message_that_names_no_run_raises(payload: str) -> None:
    """It becomes a dead letter with the reason."""
    with pytest.raises(InvalidEventError):
        read_run_ids(payload)


@pytest.mark.parametrize("data", [None, {}, {"runId": None}, {"runId": 5}, {"runId": "x" * 301}, "text"])
def test_without_an_id_in_data_the_subject_names_the_run(data: object) -> None:
    """It ends with the run's id."""
    assert OURS == read_run_id(f"experiments/0fa9dfaa/runs/{OURS}", data)


@pytest.mark.parametrize("subject", [None, "", "experiments/x", "runs/", "runs/a/b"])
def test_an_event_that_names_no_run_raises(subject: str | None) -> None:
    """Its message becomes a dead letter."""
    with pytest.raises(InvalidEventError, match="run event: names no run"):
        read_run_id(subject, {})


REQUEST = TrainingRequest(dataset_version=VERSION, generation=1, trigger="closed")


def message(**changes: Any) -> str:
    """A message with members exchanged."""
    return json.dumps(json.loads(REQUEST.to_json()) | changes)


def test_a_request_reads_back_as_it_was_sent() -> None:
    """This holds with and without a run."""
    named = TrainingRequest(dataset_version=VERSION, generation=2, trigger="http", run_id="landfall-x-a1")
    assert [REQUEST, named] == [TrainingRequest.from_json(one.to_json()) for one in (REQUEST, named)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "null",
        message(generation="1"),
        message(generation=True),
        message(trigger=""),
        message(trigger=None),
        message(run_id=5),
        message(dataset_version={"dataset": "digits"}),
        message(dataset_version={"dataset": "digits", "version": 1}),
        message(unknown=1),
        "x" * (MAX_REQUEST_BYTES + 1),
        "[" * MAX_REQUEST_BYTES,
    ],
)
def test_what_is_no_request_raises_and_ends_as_poison(text: str) -> None:
    """Only Landfall writes into this queue; anything else is a mistake."""
    with pytest.raises(InvalidEventError, match="training request"):
        TrainingRequest.from_json(text)
