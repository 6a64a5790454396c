"""One emulator for all tests that do not stop it; each test has its own container and queue."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from azure.storage.blob import BlobServiceClient, ContainerClient

from local_azure.azurite import DATA_ACCOUNT, Azurite
from local_azure.processes import wait_until
from tests.support.event_grid import EventGrid, queued_events, start_event_grid, storage_config, storage_settings


@dataclass(frozen=True, kw_only=True)
class Uploads:
    """A followed container, and the queue that receives its events."""

    azurite: Azurite
    queue: str
    container: ContainerClient
    service: BlobServiceClient
    grid: EventGrid

    def events(self, num: int = 1) -> list[dict[str, Any]]:
        """Events since the last call, in the order of the writes: at least ``num``, once those have arrived.

        More would have arrived before a mark that is uploaded last, or with it: several are delivered at once.
        """
        self.container.upload_blob("the-mark", b"")
        seen: list[dict[str, Any]] = []

        def arrived() -> bool:
            seen.extend(queued_events(self.azurite, self.queue))
            marks = [event for event in seen if event["subject"].endswith("/the-mark")]
            return bool(marks) and len(seen) - len(marks) >= num

        wait_until(arrived, what=f"{num} events and the mark's")
        events = [event for event in seen if not event["subject"].endswith("/the-mark")]
        return sorted(events, key=lambda event: str(event["data"]["sequencer"]))


FOLLOWED = [f"followed-{number:02d}" for number in range(40)]
"""Containers with one subscription each, to a queue of the same name. Every test takes the next one."""


@pytest.fixture(scope="session")
def following(
    azurite: Azurite, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[EventGrid, Iterator[str]]]:
    """An emulator that follows storage, and the containers that no test has used yet."""
    config = storage_config(azurite, *((name, name) for name in FOLLOWED))
    grid = start_event_grid(tmp_path_factory.mktemp("following"), config, storage_settings(azurite))
    yield grid, iter(FOLLOWED)
    grid.process.stop()


@pytest.fixture
def uploads(azurite: Azurite, following: tuple[EventGrid, Iterator[str]]) -> Iterator[Uploads]:
    """A followed container for this test."""
    grid, unused = following
    name = next(unused)
    # Small limits, so that a few kilobytes are uploaded as a list of blocks.
    connection = azurite.connection_string(DATA_ACCOUNT)
    with BlobServiceClient.from_connection_string(
        connection, max_single_put_size=4096, max_block_size=1024
    ) as service:
        container = service.create_container(name)
        yield Uploads(azurite=azurite, queue=name, container=container, service=service, grid=grid)


@pytest.fixture(scope="session")
def custom_topics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EventGrid]:
    """An emulator without storage."""
    grid = start_event_grid(tmp_path_factory.mktemp("event_grid"), {"topics": ["landfall", "azureml"]}, {})
    yield grid
    grid.process.stop()
