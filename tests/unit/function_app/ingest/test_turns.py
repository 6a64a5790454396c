"""A dataset that uploads many shards at once does not keep the others waiting, and loses none."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from function_app.domain.events import CREATED
from function_app.ingest.uploads import handle_message
from function_app.services import Turns
from tests.support.long_shards import serve_uploads
from tests.support.world import VALIDATION_SHARDS, World, shard_content

NUM_SHARDS = 200
FLOOD = tuple(f"train-{index:05d}-of-{NUM_SHARDS:05d}.tfrecord" for index in range(NUM_SHARDS))


@dataclass
class Flood:
    """A world with a second dataset, and a clock of the turns that tests move."""

    now_s: float = 0.0
    world: World = field(default_factory=World)

    def __post_init__(self) -> None:
        self.world.add_pipelines("faces")
        self.world.services = replace(self.world.services, turns=Turns(seconds=lambda: self.now_s))

    def arrive(self, *paths: str, num_deliveries: int = 1, container: str = "datasets") -> None:
        """Handle one message of the queue of uploads."""
        handle_message(message(paths, container).encode(), self.world.services, num_deliveries=num_deliveries)

    def upload_all(self) -> None:
        """Upload a version of 200 shards, and handle its messages in the order of their arrival."""
        for number, name in enumerate(FLOOD):
            self.arrive(self.world.put(name, shard_content(number % 10, number // 10 % 10, number // 100)))

    def num_judged(self) -> int:
        """How many shards of the flood have a verdict."""
        return len(self.world.ledger.shard_rows)


def message(paths: Sequence[str], container: str = "datasets") -> str:
    """Return a message as Event Grid sends it, with one event for each path."""
    subject = f"/blobServices/default/containers/{container}/blobs/"
    return json.dumps(
        [{"id": path, "eventType": CREATED, "subject": subject + path, "data": {"api": "PutBlob"}} for path in paths]
    )


@pytest.fixture
def flood() -> Flood:
    return Flood()


def test_a_shard_behind_a_flood_waits_for_one_turn(flood: Flood) -> None:
    """The 180 shards before it are only passed on."""
    flood.upload_all()
    before = flood.num_judged()
    other = flood.world.put(FLOOD[0], dataset="faces")
    flood.arrive(other)
    assert (20, ["shard_accepted"]) == (before, flood.world.actions(other))


def test_what_was_passed_on_is_judged_and_closes_the_version(flood: Flood) -> None:
    """None is lost."""
    flood.upload_all()
    flood.world.upload_shards(*VALIDATION_SHARDS)
    assert NUM_SHARDS - 20 == len(flood.world.bulk.messages)
    serve_uploads(flood.world)
    generation = flood.world.ledger.latest_generation(next(flood.world.ledger.versions()))
    assert NUM_SHARDS + 1 == (generation and generation.num_shards)


def test_a_message_of_many_shards_counts_them_all(flood: Flood) -> None:
    """Those of the sweep have ten."""
    for start in range(0, 40, 10):
        flood.arrive(*(flood.world.put(name) for name in FLOOD[start : start + 10]))
    assert (20, 2) == (flood.num_judged(), len(flood.world.bulk.messages))


def test_after_a_minute_a_dataset_has_another_turn(flood: Flood) -> None:
    """Slow uploads never leave the queue of uploads."""
    flood.upload_all()
    flood.now_s = 60.0
    late = flood.world.put(VALIDATION_SHARDS[0])
    flood.arrive(late)
    assert ["shard_accepted"] == flood.world.actions(late)


def test_a_repeated_delivery_is_not_passed_on(flood: Flood) -> None:
    """In another queue it would count as the first, and a shard that kills its validation would never be rejected."""
    flood.upload_all()
    again = flood.world.put(VALIDATION_SHARDS[0])
    flood.arrive(again, num_deliveries=2)
    assert ["shard_accepted"] == flood.world.actions(again)


def test_a_message_with_a_shard_of_another_dataset_is_handled(flood: Flood) -> None:
    """That shard has not had its turn."""
    flood.upload_all()
    other = flood.world.put(FLOOD[0], dataset="faces")
    flood.arrive(flood.world.put(VALIDATION_SHARDS[0]), other)
    assert ["shard_accepted"] == flood.world.actions(other)


def test_uploads_of_others_have_no_turns(flood: Flood) -> None:
    """They are counted by the day, which is no work, and their names must not fill the memory."""
    for number in range(100):
        flood.arrive(f"others{number}/v1/{FLOOD[0]}")
    assert ({}, 0) == (flood.world.services.turns.came_s, len(flood.world.bulk.messages))
