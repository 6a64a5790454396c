"""Undeliverable events and messages become dead letters with their reason, and can be replayed over the HTTP API."""

from __future__ import annotations

import base64
import contextlib
import json
from typing import Any

import pytest
from azure.core.exceptions import ResourceExistsError
from azure.storage.blob import BlobServiceClient

from local_azure.processes import wait_until
from tests.support.twin import TwinUnderTest
from tests.twin.shards import flip_bit, whole_version

pytestmark = pytest.mark.twin


def event(path: str) -> dict[str, Any]:
    """An upload event in Event Grid's schema."""
    return {
        "id": f"event of {path}",
        "eventType": "Microsoft.Storage.BlobCreated",
        "subject": f"/blobServices/default/containers/datasets/blobs/{path}",
        "eventTime": "2026-11-20T12:00:00Z",
        "data": {"api": "PutBlob"},
        "dataVersion": "",
        "metadataVersion": "1",
    }


def letter_about(twin: TwinUnderTest, subject: str) -> dict[str, Any]:
    """Sweep until there is a letter about a subject; return the letter."""

    def found() -> dict[str, Any] | None:
        twin.sweep()
        letters = twin.api.get("/api/dead-letters")["dead_letters"]
        return next((letter for letter in letters if subject in (letter["subject"], letter["error"])), None)

    return wait_until(found, what=f"a dead letter about {subject}", poll_s=0.5)


def test_a_requested_sweep_runs_in_a_function_of_its_own(twin: TwinUnderTest) -> None:
    """The request returns at once, and the result is available some time later."""
    before = twin.sweep()
    asked = twin.api.post("/api/reconcile")
    ended = twin.sweep()
    assert before["ended_at"] < asked["requested_at"] <= ended["requested_at"]
    assert ("done", []) == (ended["state"], ended["report"]["problems"])


def accepted(twin: TwinUnderTest, version: str) -> int:
    """Return the number of accepted shards of the training split."""
    return int(twin.version(version).get("splits", {}).get("train", {}).get("accepted", 0))


@pytest.mark.usefixtures("no_faults_left")
def test_a_poison_message_becomes_a_letter_and_its_replay_is_processed(twin: TwinUnderTest) -> None:
    """The message is moved to the poison queue; its replay is handled like any other message."""
    name, content = next(iter(whole_version().items()))
    path = f"steady/poisoned/{name}"
    twin.client.set_faults({"topic": "storage", "drop": True})
    twin.upload("steady/poisoned", {name: content})
    with contextlib.suppress(ResourceExistsError):  # a message of another test
        twin.queues.create_queue("shard-uploaded-poison")
    message = base64.b64encode(json.dumps(event(path)).encode()).decode()
    twin.queues.get_queue_client("shard-uploaded-poison").send_message(message)
    letter = letter_about(twin, path)
    twin.api.post(f"/api/dead-letters/{letter['dead_letter_id']}/replay")
    wait_until(lambda: accepted(twin, "steady/poisoned") == 1, what="the shard to be judged")
    actions = [line["action"] for line in twin.api.get(f"/api/why/{path}")["lines"]]
    assert {"dead_letter", "dead_letter_replayed", "shard_accepted"} <= set(actions)


def test_a_message_that_cannot_be_decoded_becomes_a_letter(twin: TwinUnderTest) -> None:
    """The development host moves it to the poison queue at once, because it cannot call the function with it."""
    twin.queues.get_queue_client("shard-uploaded").send_message("{no base64")
    error = "the message is not base64-encoded text, as host.json requires; a replay encodes it"
    assert ("shard-uploaded", "") == (letter_about(twin, error)["source"], letter_about(twin, error)["subject"])


@pytest.mark.usefixtures("no_faults_left")
def test_an_event_that_event_grid_gave_up_is_replayed(twin: TwinUnderTest) -> None:
    """The event is in a blob, with the reason beside its members."""
    name, content = next(iter(whole_version().items()))
    path = f"steady/undelivered/{name}"
    twin.client.set_faults({"topic": "storage", "drop": True})
    twin.upload("steady/undelivered", {name: content})
    dead = event(path) | {"deadLetterReason": "MaxDeliveryAttemptsExceeded", "deliveryAttempts": 30}
    with BlobServiceClient.from_connection_string(twin.twin.places.host_connection) as host:
        container = host.get_container_client("landfall-dead-letters")
        with contextlib.suppress(ResourceExistsError):  # made by the deployment
            container.create_container()
        container.upload_blob("SHARDS/2026/11/20/12/one.json", json.dumps([dead]))
        letter = letter_about(twin, path)
        left = [blob.name for blob in container.list_blobs()]
    assert (30, True, []) == (letter["tries"], "MaxDeliveryAttemptsExceeded" in letter["error"], left)


def test_why_explains_a_rejected_shard(twin: TwinUnderTest) -> None:
    """The history states what came, what was recorded and why, and what is awaited now."""
    name, content = next(iter(whole_version().items()))
    twin.upload("steady/asked-why", {name: flip_bit(content, offset=len(content) // 2)})
    wait_until(lambda: twin.rejected("steady/asked-why"), what="the shard to be rejected")

    def explained() -> dict[str, Any] | None:
        answer: dict[str, Any] = twin.api.get(f"/api/why/steady/asked-why/{name}")
        return answer if answer["lines"] else None  # the verdict is written before its entry in the history

    answer = wait_until(explained, what="the rejection to be in the history")
    assert ("blob", ["shard_rejected"]) == (answer["kind"], [line["action"] for line in answer["lines"]])
    assert ["a corrected upload; the current content was rejected"] == answer["awaited"]
    version = twin.api.get("/api/why/steady/asked-why")["awaited"]
    assert version[0].startswith(f"a corrected upload of {name}, which was rejected: ")
