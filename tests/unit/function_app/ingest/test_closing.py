"""Closing: a version closes exactly once for each content, cheaply, whichever shard comes last."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from function_app.domain.records import DatasetVersion, ShardRecord
from function_app.ingest.closing import accepted_content, close_version
from function_app.testing.ledger import MemoryLedger
from shared.manifest import Manifest
from tests.support.world import ALL_SHARDS, TRAIN_SHARDS, VALIDATION_SHARDS, VERSION, World, pipeline, shard_content


@pytest.mark.parametrize("order", list(itertools.permutations(ALL_SHARDS)))
def test_any_order_closes_once(order: tuple[str, ...]) -> None:
    """The last one closes, whichever that is."""
    world = World()
    world.upload_shards(*order)
    assert ([1], 1) == ([g.number for g in world.ledger.generation_rows.values()], len(world.requests.messages))


@pytest.mark.parametrize("missing", ALL_SHARDS)
def test_a_version_that_lacks_one_shard_stays_open(missing: str) -> None:
    """Every required split needs all of its shards."""
    world = World()
    world.upload_shards(*(name for name in ALL_SHARDS if name != missing))
    assert (None, []) == (world.ledger.latest_generation(VERSION), world.requests.messages)


def test_the_manifest_lists_the_shards_and_is_written_before_the_closing_is_known() -> None:
    """When the generation's row can be read, its manifest exists."""
    world = World()
    world.upload_shards(*ALL_SHARDS)
    generation = world.ledger.latest_generation(VERSION)
    assert generation is not None
    manifest = Manifest.from_json(world.documents.documents[generation.manifest_path])
    assert (list(ALL_SHARDS), generation.fingerprint) == ([s.name for s in manifest.shards], manifest.fingerprint)
    assert f"manifests/digits/v1/g1-{generation.fingerprint[:12]}.json" == generation.manifest_path
    splits = manifest.statistics["splits"]
    assert {split: manifest.num_records(split) for split in ("train", "validation")} == {
        split: part["num_records"] for split, part in splits.items()
    }


def test_a_rejected_shard_keeps_the_version_open_until_it_is_mended() -> None:
    """Bad data starts no training."""
    world = World()
    world.deliver(world.put(TRAIN_SHARDS[0], b"broken"))
    world.upload_shards(*ALL_SHARDS[1:])
    assert world.ledger.latest_generation(VERSION) is None
    world.upload_shards(TRAIN_SHARDS[0])
    assert world.ledger.latest_generation(VERSION) is not None


def test_the_same_bytes_uploaded_again_change_nothing() -> None:
    """The fingerprint is of the content, not of the upload."""
    world = World()
    world.upload_version()
    world.upload_shards(*ALL_SHARDS)
    world.serve_requests()
    assert (1, 1) == (len(world.ledger.generation_rows), len(world.ledger.runs()))


def test_a_changed_shard_opens_the_next_generation_and_recipients_are_notified() -> None:
    """The default: nothing is trained behind anybody's back."""
    world = World()
    world.upload_version()
    world.deliver(world.put(TRAIN_SHARDS[0], shard_content(5)))
    world.serve_requests()
    notified = [(n.recipient, n.outcome) for n in world.ledger.notifications(str(VERSION))]
    assert [1, 2] == [g.number for g in world.ledger.generation_rows.values()]
    assert (1, [("topic", "version_changed"), ("webhook:LANDFALL_WEBHOOK_PEOPLE", "version_changed")]) == (
        len(world.ledger.runs()),
        notified,
    )


def test_a_pipeline_may_have_a_change_trained() -> None:
    """on_change: train."""
    world = World()
    world.change_pipeline(on_change="train")
    world.upload_version()
    world.deliver(world.put(TRAIN_SHARDS[0], shard_content(5)))
    world.serve_requests()
    assert {1, 2} == {run.generation for run in world.ledger.runs()}


def test_a_late_duplicate_reads_no_shard() -> None:
    """Ten thousand duplicates after a closing must not read ten thousand shards each."""
    ledger = CountingLedger()
    world = World(ledger=ledger)
    world.upload_shards(*TRAIN_SHARDS)
    world.clock.move(minutes=1)
    world.upload_shards(*VALIDATION_SHARDS)
    world.serve_requests()
    ledger.calls.clear()
    world.deliver(f"digits/v1/{TRAIN_SHARDS[0]}")
    assert (0, 1) == (ledger.calls["shards"], ledger.calls["accepted_in_bucket"])


def test_a_shard_costs_the_same_in_a_large_version() -> None:
    """Table operations per shard do not grow with the number of shards."""
    per_shard = [_operations_per_shard(num_shards) for num_shards in (64, 256)]
    assert per_shard[1] <= per_shard[0]


def test_closing_a_version_that_is_open_is_no_closing() -> None:
    """The sweep asks about every version."""
    world = World()
    world.upload_shards(TRAIN_SHARDS[0])
    assert close_version(pipeline(), VERSION, world.services) is None


def test_a_handler_with_older_verdicts_does_not_close_after_one_with_newer() -> None:
    """The handler is overtaken between its reading of the verdicts and its closing."""
    ledger = OvertakenLedger()
    world = World(ledger=ledger)
    world.upload_shards(*ALL_SHARDS)
    world.deliver(world.put(TRAIN_SHARDS[0], shard_content(7)))
    ledger.generation_rows.pop((VERSION, 2))  # its handler is the one that is overtaken
    ledger.meanwhile = lambda: world.deliver(world.put(TRAIN_SHARDS[1], shard_content(7, 7)))
    close_version(pipeline(), VERSION, world.services)
    newest, latest = accepted_content(ledger.shards(VERSION), pipeline()), ledger.latest_generation(VERSION)
    assert latest is not None
    assert (2, newest) == (latest.number, (latest.num_shards, latest.fingerprint))


class OvertakenLedger(MemoryLedger):
    """The double, in which something happens right after a handler has read the verdicts of a version."""

    meanwhile: Callable[[], object] | None = None

    def shards(self, version: DatasetVersion) -> Iterator[ShardRecord]:
        """See ports.ShardLedger."""
        rows = list(super().shards(version))
        happen, self.meanwhile = self.meanwhile, None
        if happen is not None:
            happen()
        return iter(rows)


class CountingLedger(MemoryLedger):
    """The double, counting the calls of its methods."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        super().__init__()

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if callable(value) and not name.startswith("_"):
            self.calls[name] += 1
        return value


def _operations_per_shard(num_shards: int) -> float:
    ledger = CountingLedger()
    world = World(ledger=ledger)
    world.upload_shards("validation-00000-of-00001.tfrecord")
    world.upload_shards(*(f"train-{index:05d}-of-{num_shards:05d}.tfrecord" for index in range(num_shards)))
    assert world.ledger.latest_generation(VERSION) is not None
    return ledger.calls.total() / num_shards
