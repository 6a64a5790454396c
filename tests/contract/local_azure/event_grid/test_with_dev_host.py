"""The emulator and the dev host together: an upload and a custom event each end in a function."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from azure.storage.blob import ContainerClient

from local_azure.azurite import DATA_ACCOUNT, Azurite
from local_azure.processes import wait_until
from tests.contract.local_azure.dev_host import fixture_settings, start_dev_host
from tests.support.event_grid import custom_event, start_event_grid, storage_config, storage_settings
from tests.support.processes import free_port

pytestmark = [pytest.mark.azurite, pytest.mark.xdist_group("event_grid")]

KEY = "key-of-the-webhook"


def test_an_upload_and_an_event_reach_their_functions(azurite: Azurite, tmp_path: Path) -> None:
    """Through the queue and through the webhook, although the dev host starts after the emulator."""
    port = free_port()
    webhook = f"http://127.0.0.1:{port}/runtime/webhooks/eventgrid?functionName=on_event&code={KEY}"
    config = storage_config(azurite, ("with-dev-host", "with-dev-host"))
    config["topics"].append("azureml")
    config["subscriptions"].append({"name": "runs", "topic": "azureml", "webhook": webhook})
    grid = start_event_grid(tmp_path, config, storage_settings(azurite))
    settings = fixture_settings(azurite.connection_string(), "with-dev-host", tmp_path / "journal") | {
        "KEYS": json.dumps({"masterKey": "m", "systemKeys": {"eventgrid_extension": KEY}})
    }
    host = start_dev_host(tmp_path, settings, "--keys-env", "KEYS", port=port)

    grid.publish("azureml", custom_event("e1", n=1))
    with ContainerClient.from_connection_string(
        azurite.connection_string(DATA_ACCOUNT), "with-dev-host"
    ) as container:
        container.create_container()
        blob = container.upload_blob("digits/v1/train-00000-of-00001", b"x" * 9)

    (message,) = wait_until(lambda: host.journalled("queue"), what="the upload to reach its function")
    (event,) = wait_until(lambda: host.journalled("event"), what="the event to reach its function")
    host.process.stop()
    grid.process.stop()
    uploaded = json.loads(message["body"])["data"]
    assert ("PutBlob", blob.url, 9) == (uploaded["api"], uploaded["url"], uploaded["contentLength"])
    assert ("e1", {"n": 1}) == (event["id"], event["data"])
