"""The emulator stops and restarts while blobs are written."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from azure.storage.blob import ContainerClient

from local_azure.azurite import DATA_ACCOUNT, Azurite
from local_azure.processes import wait_until
from tests.support.event_grid import EventGrid, queued_events, start_event_grid, storage_config, storage_settings

pytestmark = [pytest.mark.azurite, pytest.mark.xdist_group("event_grid")]


@dataclass(kw_only=True)
class Followed:
    """A container whose events go to a queue while an emulator runs."""

    azurite: Azurite
    container: ContainerClient
    folder: Path
    running: list[EventGrid] = field(default_factory=list)

    def start(self) -> EventGrid:
        """Start an emulator with the state of the previous one."""
        name = self.container.container_name
        grid = start_event_grid(
            self.folder, storage_config(self.azurite, (name, name)), storage_settings(self.azurite)
        )
        self.running.append(grid)
        return grid

    def write(self, *names: str) -> None:
        """Create blobs."""
        for name in names:
            self.container.upload_blob(name, b"x")

    def names(self, *awaited: str) -> list[str]:
        """Return the names of the blobs whose events are in the queue, once all of `awaited` are among them."""
        seen: list[str] = []

        def arrived() -> bool:
            events = queued_events(self.azurite, self.container.container_name)
            seen.extend(event["subject"].rpartition("/")[2] for event in events)
            return set(awaited) <= set(seen)

        wait_until(arrived, what=f"events for {', '.join(awaited)}")
        return seen


@pytest.fixture
def followed(azurite: Azurite, tmp_path: Path) -> Iterator[Followed]:
    """A container for this test."""
    connection, name = azurite.connection_string(DATA_ACCOUNT), f"restart-{uuid.uuid4().hex[:8]}"
    with ContainerClient.from_connection_string(connection, name) as container:
        container.create_container()
        one = Followed(azurite=azurite, container=container, folder=tmp_path)
        yield one
    for grid in one.running:
        grid.process.stop()


def test_writes_before_the_first_start_raise_no_event(followed: Followed) -> None:
    """A new emulator starts at the end of the log."""
    followed.write("before")
    line = f"/{followed.container.container_name}/before "
    wait_until(lambda: line in followed.azurite.access_log.read_text(), what="the write to be logged")
    followed.start()
    followed.write("after")
    assert ["after"] == followed.names("after")


def test_a_restart_neither_loses_nor_repeats(followed: Followed) -> None:
    """Writes between two emulators cause one event each, earlier ones none; sequencers keep rising."""
    first = followed.start()
    followed.write("one")
    assert ["one"] == followed.names("one")
    assert 0 == first.process.stop()
    followed.write("two")
    second = followed.start()
    followed.write("three")
    assert ["two", "three"] == followed.names("two", "three")
    sequencers = [entry["event"]["data"]["sequencer"] for entry in second.get("/topics/storage/received")]
    assert sorted(set(sequencers)) == sequencers


def test_a_killed_emulator_loses_nothing(followed: Followed) -> None:
    """After a kill during many uploads, every blob causes at least one event."""
    first = followed.start()
    names = [f"shard-{index:03}" for index in range(60)]
    followed.write(*names[:30])
    first.process.kill()
    followed.write(*names[30:])
    followed.start()
    followed.write("last")
    assert {*names, "last"} == set(followed.names(*names, "last"))


def test_a_blob_that_is_gone_already_raises_no_created_event(followed: Followed) -> None:
    """It was written and deleted while no emulator ran: logged, without an event."""
    followed.start().process.stop()
    followed.write("gone")
    followed.container.delete_blob("gone")
    second = followed.start()
    followed.write("there")
    assert ["there"] == followed.names("there")
    second.process.await_line(f"{followed.container.container_name}/gone was deleted before its PutBlob")
