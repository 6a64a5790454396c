"""The emulator ends and comes back while blobs are written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.storage.blob import ContainerClient

from local_azure.azurite import DATA_ACCOUNT, Azurite
from local_azure.processes import wait_until
from tests.support.azurite import start_azurite
from tests.support.event_grid import EventGrid, queued_events, start_event_grid, storage_config, storage_settings

pytestmark = pytest.mark.azurite


@pytest.fixture
def azurite(tmp_path: Path) -> Iterator[Azurite]:
    running = start_azurite(tmp_path)
    yield running
    running.stop()


@pytest.fixture
def container(azurite: Azurite) -> Iterator[ContainerClient]:
    with ContainerClient.from_connection_string(azurite.connection_string(DATA_ACCOUNT), "datasets") as client:
        client.create_container()
        yield client


def _start(azurite: Azurite, folder: Path) -> EventGrid:
    return start_event_grid(folder, storage_config(azurite, "datasets", "shards"), storage_settings(azurite))


def _names(azurite: Azurite, until: str) -> list[str]:
    """The names in the queue once ``until`` is among them."""
    seen: list[str] = []

    def arrived() -> bool:
        seen.extend(event["subject"].rpartition("/")[2] for event in queued_events(azurite, "shards"))
        return until in seen

    wait_until(arrived, what=f"an event for {until}")
    return seen


def test_writes_before_the_first_start_are_not_told(
    azurite: Azurite, container: ContainerClient, tmp_path: Path
) -> None:
    """A new emulator begins at the end of the log."""
    container.upload_blob("before", b"x")
    wait_until(lambda: b"/datasets/before " in azurite.access_log.read_bytes(), what="the write to be logged")

    grid = _start(azurite, tmp_path)
    container.upload_blob("after", b"x")

    assert ["after"] == _names(azurite, "after")
    grid.process.stop()


def test_a_restart_neither_loses_nor_repeats(azurite: Azurite, container: ContainerClient, tmp_path: Path) -> None:
    """What was written while the emulator was away is told once, and what was told before is not told again."""
    first = _start(azurite, tmp_path)
    container.upload_blob("one", b"x")
    assert ["one"] == _names(azurite, "one")
    assert 0 == first.process.stop()
    container.upload_blob("two", b"x")

    second = _start(azurite, tmp_path)
    container.upload_blob("three", b"x")

    assert ["two", "three"] == _names(azurite, "three")
    second.process.stop()


def test_sequencers_rise_over_a_restart(azurite: Azurite, container: ContainerClient, tmp_path: Path) -> None:
    """Later writes have higher sequencers, whichever emulator told of them."""
    first = _start(azurite, tmp_path)
    container.upload_blob("one", b"x")
    _names(azurite, "one")
    first.process.stop()
    second = _start(azurite, tmp_path)
    container.upload_blob("two", b"x")
    _names(azurite, "two")

    sequencers = [entry["event"]["data"]["sequencer"] for entry in second.get("/topics/storage/received")]
    second.process.stop()
    assert sorted(set(sequencers)) == sequencers


def test_a_killed_emulator_loses_nothing(azurite: Azurite, container: ContainerClient, tmp_path: Path) -> None:
    """After a kill in the middle of many uploads every blob is told at least once."""
    first = _start(azurite, tmp_path)
    names = [f"shard-{index:03}" for index in range(120)]
    for name in names[:60]:
        container.upload_blob(name, b"x")
    first.process.kill()
    for name in names[60:]:
        container.upload_blob(name, b"x")

    second = _start(azurite, tmp_path)
    container.upload_blob("last", b"x")

    assert set(names) <= set(_names(azurite, "last"))
    second.process.stop()


def test_a_log_that_starts_anew_is_read_from_its_start(
    azurite: Azurite, container: ContainerClient, tmp_path: Path
) -> None:
    """Emptied in place, as a restarted Azurite would: what comes after is told, once."""
    grid = _start(azurite, tmp_path)
    container.upload_blob("one", b"x")
    _names(azurite, "one")
    with azurite.access_log.open("r+b") as log:
        log.truncate(0)
    container.upload_blob("two", b"x")

    assert ["two"] == _names(azurite, "two")
    grid.process.stop()


def test_a_blob_that_is_gone_already_raises_no_created_event(
    azurite: Azurite, container: ContainerClient, tmp_path: Path
) -> None:
    """Written and deleted while the emulator was away: logged, not told."""
    first = _start(azurite, tmp_path)
    first.process.stop()
    container.upload_blob("gone", b"x")
    container.delete_blob("gone")
    second = _start(azurite, tmp_path)
    container.upload_blob("there", b"x")

    assert ["there"] == _names(azurite, "there")
    second.process.await_line("datasets/gone was deleted before its PutBlob could be told")
    second.process.stop()
