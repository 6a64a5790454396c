"""The Event Grid emulator as a process."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from azure.core.exceptions import ResourceNotFoundError
from azure.storage.queue import QueueClient

from local_azure.azurite import DATA_ACCOUNT, Azurite
from local_azure.processes import PATIENCE_S, Process, event_grid_program, listening_url, wait_until

TOPIC_KEY = base64.b64encode(b"a topic key of the tests").decode()


@dataclass(frozen=True, kw_only=True)
class EventGrid:
    """A running emulator."""

    process: Process
    url: str
    """The URL, without a slash at the end."""

    def get(self, path: str) -> Any:
        """Return the JSON at ``path``."""
        return self.request("GET", path).json()

    def request(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        """Send a request and return the response, whatever its status."""
        return httpx.request(method, f"{self.url}{path}", timeout=PATIENCE_S, **arguments)

    def publish(self, topic: str, *events: Mapping[str, Any]) -> httpx.Response:
        """Publish ``events`` in Event Grid's schema."""
        path = f"/topics/{topic}/api/events"
        return self.request("POST", path, json=list(events), headers={"aeg-sas-key": TOPIC_KEY})

    def topic_endpoint(self, topic: str) -> str:
        """Return the address for a publisher client."""
        return f"{self.url}/topics/{topic}/api/events"

    def wait_for(self, path: str, condition: Callable[[list[Any]], bool], what: str) -> list[Any]:
        """Return the list at ``path`` once it fulfils ``condition``."""

        def look() -> list[Any] | None:
            seen: list[Any] = self.get(path)
            return seen if condition(seen) else None

        return wait_until(look, what=what)


def start_event_grid(
    folder: Path, config: Mapping[str, Any], settings: Mapping[str, str], port: int = 0
) -> EventGrid:
    """Start the emulator with its state in ``folder`` (port 0: any free port), and wait until it listens."""
    path = folder / "event_grid.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    process = start_event_grid_process(path, settings, port)
    return EventGrid(process=process, url=listening_url(process.await_ready()))


def start_event_grid_process(config: Path, settings: Mapping[str, str], port: int = 0) -> Process:
    """Start the emulator without waiting for it."""
    program = event_grid_program(
        log=config.with_suffix(".log"), config=config, settings=settings, topic_key=TOPIC_KEY, port=port
    )
    return Process(program, guarded=False)


def storage_settings(azurite: Azurite) -> dict[str, str]:
    """The two connections as the twin names them."""
    return {
        "AzureWebJobsStorage": azurite.connection_string(),
        "DataStorage": azurite.connection_string(DATA_ACCOUNT),
    }


def storage_config(azurite: Azurite, *routes: tuple[str, str]) -> dict[str, Any]:
    """Return a configuration that sends the events of containers to queues; pairs are (container, queue)."""
    return {
        "storage": {
            "access_log": str(azurite.access_log),
            "account": DATA_ACCOUNT,
            "connection_env": "DataStorage",
        },
        "topics": ["storage"],
        "subscriptions": [
            {
                "name": f"uploads-to-{container}",
                "topic": "storage",
                "included_event_types": ["Microsoft.Storage.BlobCreated"],
                "subject_begins_with": f"/blobServices/default/containers/{container}/",
                "queue": queue,
            }
            for container, queue in routes
        ],
    }


def queued_events(azurite: Azurite, queue: str) -> list[dict[str, Any]]:
    """Take all visible events out of ``queue``, oldest first; an empty list if the queue does not exist yet."""
    with QueueClient.from_connection_string(azurite.connection_string(), queue) as client:
        try:
            messages = list(client.receive_messages(messages_per_page=32, visibility_timeout=3600))
        except ResourceNotFoundError:
            return []
    return [json.loads(base64.b64decode(message.content)) for message in messages]


def custom_event(event_id: str, subject: str = "subject", kind: str = "Test.Happened", **data: Any) -> dict[str, Any]:
    """A complete event in Event Grid's schema."""
    return {
        "id": event_id,
        "subject": subject,
        "eventType": kind,
        "eventTime": "2026-11-20T10:00:00.1234567Z",
        "data": data,
        "dataVersion": "1",
    }
