"""The emulator and the development host together: an upload and a run event each reach a function."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from azure.storage.blob import ContainerClient

from local_azure.azurite import DATA_ACCOUNT, Azurite
from local_azure.processes import wait_until
from tests.contract.local_azure.dev_host import fixture_settings, start_dev_host
from tests.support.event_grid import custom_event, start_event_grid, storage_config, storage_settings

pytestmark = [pytest.mark.azurite, pytest.mark.xdist_group("event_grid")]


def test_an_upload_and_a_run_event_reach_their_function(azurite: Azurite, tmp_path: Path) -> None:
    """They pass through queues, although the host starts after the emulator; filtered events do not arrive."""
    config = storage_config(azurite, ("with-dev-host", "with-dev-host"))
    config["topics"].append("azureml")
    ours = {"operatorType": "StringContains", "key": "subject", "values": ["/runs/ours-"]}
    config["subscriptions"].append(
        {"name": "runs", "topic": "azureml", "queue": "with-dev-host", "advanced_filters": [ours]}
    )
    grid = start_event_grid(tmp_path, config, storage_settings(azurite))
    settings = fixture_settings(azurite.connection_string(), "with-dev-host", tmp_path / "journal")
    host = start_dev_host(tmp_path, settings)

    grid.publish("azureml", custom_event("e1", "experiments/x/runs/theirs-1", n=1))
    grid.publish("azureml", custom_event("e2", "experiments/x/runs/ours-1", n=2))
    with ContainerClient.from_connection_string(
        azurite.connection_string(DATA_ACCOUNT), "with-dev-host"
    ) as container:
        container.create_container()
        blob = container.upload_blob("digits/v1/train-00000-of-00001", b"x" * 9)

    messages = wait_until(
        lambda: host.journalled("queue") if len(host.journalled("queue")) > 1 else None, what="both messages"
    )
    host.process.stop()
    grid.process.stop()
    found = {body["subject"].rpartition("/")[2]: body["data"] for body in (json.loads(m["body"]) for m in messages)}
    uploaded = found.pop("train-00000-of-00001")
    assert ("PutBlob", blob.url, 9) == (uploaded["api"], uploaded["url"], uploaded["contentLength"])
    assert {"ours-1": {"n": 2}} == found
