"""The sweep of storage against the ledger: what is missed is found, and what has not changed costs little."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from function_app.domain.records import DatasetVersion, ShardRecord
from function_app.sweep.sweep import SweepReport, run_sweep
from function_app.testing.ledger import MemoryLedger
from tests.support.world import ALL_SHARDS, TRAIN_SHARDS, VALIDATION_SHARDS, VERSION, World, shard_content


class ScanCounter(MemoryLedger):
    """A ledger that counts how often a version's verdicts are read."""

    def __init__(self) -> None:
        super().__init__()
        self.scans: Counter[DatasetVersion] = Counter()

    def shards(self, version: DatasetVersion) -> Iterator[ShardRecord]:
        self.scans[version] += 1
        return super().shards(version)


def swept(world: World, times: int = 1) -> SweepReport:
    """Sweep, five minutes apart; return the last report."""
    for _ in range(times):
        world.clock.move(minutes=5)
        report = run_sweep(world.services)
        world.serve_requests()
    return report


def settled_world() -> tuple[World, ScanCounter]:
    """A closed version that was swept, and its ledger with nothing counted."""
    ledger = ScanCounter()
    world = World(ledger=ledger)
    world.upload_version()
    swept(world, times=2)
    ledger.scans.clear()
    return world, ledger


def test_a_closed_version_that_has_not_changed_is_not_read_again() -> None:
    """Its blobs and their ETags are those of the last look."""
    world, ledger = settled_world()
    report = swept(world, times=3)
    assert (1, 1, Counter()) == (report.versions, report.versions_unchanged, ledger.scans)


def test_an_open_version_is_read_once_in_each_sweep() -> None:
    """Comparing and caring share one scan."""
    ledger = ScanCounter()
    world = World(ledger=ledger)
    world.upload_shards(*TRAIN_SHARDS)
    swept(world)
    assert {VERSION: 1} == dict(ledger.scans)


@pytest.mark.parametrize("name", [TRAIN_SHARDS[0], "train-00007-of-00009.tfrecord", "README.md"])
def test_any_change_of_the_blobs_has_the_version_looked_at(name: str) -> None:
    """After any change the mark no longer matches."""
    world, ledger = settled_world()
    world.put(name, shard_content(5))
    swept(world)
    assert ledger.scans[VERSION] >= 1


def test_a_deleted_blob_has_the_version_looked_at_once() -> None:
    """The closing stands; afterwards the version is unchanged again."""
    world, ledger = settled_world()
    world.shards.delete(f"{VERSION}/{TRAIN_SHARDS[0]}")
    swept(world)
    looked = ledger.scans[VERSION]
    report = swept(world)
    assert (1, 1, 1) == (looked, ledger.scans[VERSION], report.versions_unchanged)


def test_a_version_whose_blobs_are_all_gone_is_looked_at_once() -> None:
    """Data is often deleted after the training."""
    world, ledger = settled_world()
    for name in ALL_SHARDS:
        world.shards.delete(f"{VERSION}/{name}")
    swept(world)
    report = swept(world, times=3)
    assert (1, 1) == (ledger.scans[VERSION], report.versions_unchanged)


def test_a_closed_version_with_a_rejected_shard_is_looked_at_every_time() -> None:
    """It still requires an action; once more for a summary of what was rejected."""
    world, ledger = settled_world()
    world.deliver(world.put(TRAIN_SHARDS[0], b"<html>"))
    assert (0, 3) == (swept(world, times=2).versions_unchanged, ledger.scans[VERSION])


def test_identical_bytes_uploaded_again_are_settled_again() -> None:
    """The verdict is younger than the closing, the fingerprint is the same."""
    world, _ = settled_world()
    world.deliver(world.put(TRAIN_SHARDS[0]))
    assert 1 == swept(world, times=3).versions_unchanged


def test_a_change_whose_event_was_lost_is_found_behind_a_mark() -> None:
    """The mark is of the content, not of the version."""
    world, _ = settled_world()
    world.put(TRAIN_SHARDS[0], shard_content(5))
    swept(world, times=2)
    assert 2 == len(world.ledger.generation_rows)


def test_a_folder_within_a_version_does_not_split_it() -> None:
    """The listing is ordered by name, so a folder may stand between two shards."""
    world = World()
    for name in ALL_SHARDS:
        world.put(name)
    world.put("train-00000/nested.txt")
    swept(world, times=2)
    assert 1 == len(world.ledger.generation_rows)


def test_young_blobs_leave_no_mark() -> None:
    """Their own events are still on the way."""
    world = World()
    world.upload_version()
    world.clock.move(seconds=10)
    run_sweep(world.services)
    assert [] == [name for name in world.ledger.mark_rows if name.startswith("inventory/")]


def test_a_name_that_cannot_be_listed_is_in_the_history_once_a_day() -> None:
    """The other shards of its version are found all the same."""
    world = World()
    for name in (*ALL_SHARDS, "train-00009\x1b[31m"):
        world.put(name)
    swept(world, times=3)
    reasons = [entry.reason for entry in world.ledger.history(str(VERSION)) if entry.action == "blob_not_listed"]
    assert 1 == len(world.ledger.generation_rows)
    assert [True] == ["'digits/v1/train-00009'" in reason for reason in reasons]


def test_one_shard_that_is_uploaded_again_has_the_sweep_validate_a_version_whose_verdicts_were_lost() -> None:
    """The doctor says so of a lost table: by itself, the sweep skips a closed version whose blobs are the same."""
    world, _ = settled_world()
    world.ledger.shard_rows.clear()
    world.ledger.counters.clear()
    swept(world)
    before = len(world.ledger.shard_rows)
    world.put(TRAIN_SHARDS[0])
    swept(world, times=3)
    assert (0, len(ALL_SHARDS)) == (before, len(world.ledger.shard_rows))


def test_one_shard_of_each_split_that_is_uploaded_again_closes_a_version_whose_closing_was_lost() -> None:
    """The doctor says so of a lost table: by itself, the sweep does not know the version any more."""
    world, _ = settled_world()
    world.ledger.split_rows.clear()
    world.ledger.generation_rows.clear()
    swept(world)
    before = len(world.ledger.generation_rows)
    world.upload_shards(TRAIN_SHARDS[0], VALIDATION_SHARDS[0])
    assert (0, 1) == (before, len(world.ledger.generation_rows))
