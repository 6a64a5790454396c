"""Events that no target accepts become blobs, in Event Grid's format."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from azure.storage.blob import ContainerClient

from local_azure.azurite import Azurite
from local_azure.processes import PATIENCE_S, wait_until
from tests.support.event_grid import TOPIC_KEY, EventGrid, custom_event, start_event_grid, storage_settings
from tests.support.processes import free_port

pytestmark = [pytest.mark.azurite, pytest.mark.xdist_group("event_grid")]

BLOB_NAME = re.compile(
    r"REFUSED/\d{4}/[1-9]\d?/[1-9]\d?/(0|[1-9]\d?)/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.json"
)
CLOUD_EVENT = {"id": "c1", "source": "/tests", "specversion": "1.0", "type": "Test.Happened", "data": {"n": 1}}


@pytest.fixture
def container(azurite: Azurite) -> Iterator[ContainerClient]:
    with ContainerClient.from_connection_string(
        azurite.connection_string(), f"dead-letters-{uuid.uuid4().hex[:8]}"
    ) as client:
        client.create_container()
        yield client


@pytest.fixture
def grid(azurite: Azurite, container: ContainerClient, tmp_path: Path) -> Iterator[EventGrid]:
    """An emulator that delivers to itself, and whose receiver refuses everything after the handshake."""
    port = free_port()
    subscription = {
        "name": "refused",
        "topic": "azureml",
        "webhook": f"http://127.0.0.1:{port}/webhooks/refused",
        "dead_letter_container": container.container_name,
    }
    config = {"topics": ["azureml"], "subscriptions": [subscription]}
    running = start_event_grid(tmp_path, config, storage_settings(azurite), port=port)
    running.wait_for("/subscriptions", lambda seen: all(one["ready"] for one in seen), "the handshake")
    running.request("PUT", "/webhooks/refused", json={"status": 400, "times": 99})
    yield running
    running.process.stop()


def given_up(container: ContainerClient) -> tuple[str, list[dict[str, Any]]]:
    """Return the name and content of the only blob, once it exists."""
    (name,) = wait_until(lambda: [blob.name for blob in container.list_blobs()], what="a dead letter")
    return name, json.loads(container.download_blob(name).readall())


def test_an_event_that_is_given_up_is_a_blob_with_the_reason(grid: EventGrid, container: ContainerClient) -> None:
    """The path has the subscription's name and the hour; the reason is beside the event's members."""
    grid.publish("azureml", custom_event("e1", n=1))

    name, (event,) = given_up(container)

    assert BLOB_NAME.fullmatch(name) is not None, name
    assert ("e1", {"n": 1}) == (event["id"], event["data"])
    assert ("UndeliverableDueToHttpBadRequest", 1, "BadRequest") == tuple(
        event[member] for member in ("deadLetterReason", "deliveryAttempts", "lastDeliveryOutcome")
    )
    assert event["publishTime"] <= event["lastDeliveryAttemptTime"]


def test_a_cloud_event_carries_the_reason_in_lower_case(grid: EventGrid, container: ContainerClient) -> None:
    """Extensions of CloudEvents are in lower case."""
    headers = {"aeg-sas-key": TOPIC_KEY, "Content-Type": "application/cloudevents+json"}
    httpx.post(
        grid.topic_endpoint("azureml"), content=json.dumps(CLOUD_EVENT), headers=headers, timeout=PATIENCE_S
    ).raise_for_status()

    _, (event,) = given_up(container)

    added = {"deadletterreason", "deliveryattempts", "lastdeliveryoutcome", "publishtime", "lastdeliveryattempttime"}
    assert (CLOUD_EVENT, added) == ({name: event[name] for name in CLOUD_EVENT}, set(event) - set(CLOUD_EVENT))


def test_without_its_container_an_event_is_lost(grid: EventGrid, container: ContainerClient) -> None:
    """Event Grid does the same; the emulator reports it and continues."""
    container.delete_container()

    grid.publish("azureml", custom_event("e1"))

    grid.process.await_line(f"the dead-letter container {container.container_name} is missing, event e1 is lost")
    (subscription,) = grid.wait_for("/subscriptions", lambda seen: seen[0]["pending"] == 0, "nothing to be pending")
    assert ("refused", 0) == (subscription["name"], subscription["pending"])
