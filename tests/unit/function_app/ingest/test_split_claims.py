"""Mixed ``-of-N``: the first N stands while a shard of it is there; a wrong one spoils no name for good."""

from __future__ import annotations

import pytest

from function_app.domain.records import ShardState
from function_app.explain.description import describe_version
from function_app.sweep.sweep import sweep
from tests.support.world import ALL_SHARDS, TRAIN_SHARDS, VALIDATION_SHARDS, VERSION, World

WRONG = ("train-00000-of-00004.tfrecord", "train-00003-of-00004.tfrecord")


def rejections(world: World) -> list[str]:
    """What was said of shards that contradict the claim."""
    return [d.reason for d in world.ledger.history(str(VERSION)) if d.action == "shard_rejected"]


def delete(world: World, *names: str) -> None:
    """The data owner deletes shards; that is not notified."""
    for name in names:
        world.shards.delete(f"{VERSION}/{name}")


def test_a_contradiction_names_the_shards_that_hold_the_claim() -> None:
    """It names what to delete, on either side."""
    world = World()
    world.upload_shards(*WRONG, TRAIN_SHARDS[0])
    (reason,) = rejections(world)
    assert f"says -of-00002, but {WRONG[0]}, {WRONG[1]} came first and split train has 4 shards" in reason


def test_one_shard_left_holds_the_claim() -> None:
    """Also a rejected one: its owner may mend it."""
    world = World()
    world.upload_shards(WRONG[0])
    world.deliver(world.put(WRONG[1], b"broken"))
    delete(world, WRONG[0])
    world.upload_shards(TRAIN_SHARDS[0])
    assert (4, 1) == (world.ledger.split_sizes(VERSION)["train"], len(rejections(world)))


def test_the_claim_moves_once_its_shards_are_deleted() -> None:
    """The next shard under another N claims its own, and the set closes."""
    world = World()
    world.upload_shards(*WRONG)
    delete(world, *WRONG)
    world.upload_shards(*ALL_SHARDS)
    generation = world.ledger.latest_generation(VERSION)
    assert (2, 3, 1) == (
        world.ledger.split_sizes(VERSION)["train"],
        generation and generation.num_shards,
        world.actions(VERSION).count("split_size_moved"),
    )


def test_verdicts_on_the_deleted_shards_count_no_more() -> None:
    """Neither towards the new set nor against it, and its description does not show them."""
    world = World()
    world.upload_shards(*WRONG)
    delete(world, *WRONG)
    world.upload_shards(TRAIN_SHARDS[1])
    counts = [world.ledger.accepted_in_bucket(VERSION, "train", bucket) for bucket in range(4)]
    old = [world.ledger.shard(VERSION, "train", index) for index in (0, 3)]
    assert ([0, 1, 0, 0], [ShardState.REJECTED] * 2) == (counts, [row and row.state for row in old])
    train, _ = describe_version(VERSION, world.services).splits
    assert (1, ("train-00000-of-00002",), ()) == (train.accepted, train.missing, train.rejected)


def test_a_sweep_finds_the_shards_that_were_refused_before() -> None:
    """They came first, were refused, and the wrong one was deleted later: no event tells of that."""
    world = World()
    world.upload_shards(WRONG[0], *ALL_SHARDS)
    assert world.ledger.latest_generation(VERSION) is None
    delete(world, WRONG[0])
    world.clock.move(minutes=10)
    sweep(world.services)
    generation = world.ledger.latest_generation(VERSION)
    assert 3 == (generation and generation.num_shards)


def test_while_the_claim_stands_a_sweep_adds_nothing_to_the_history() -> None:
    """Every five minutes would be too often."""
    world = World()
    world.upload_shards(WRONG[0], *ALL_SHARDS)
    lines = len(world.actions(VERSION))
    for _ in range(3):
        world.clock.move(minutes=10)
        sweep(world.services)
    assert lines == len(world.actions(VERSION))


def test_other_splits_keep_theirs() -> None:
    """A claim is of one split of one version."""
    world = World()
    world.upload_shards(*WRONG, *VALIDATION_SHARDS)
    delete(world, *WRONG)
    world.upload_shards(TRAIN_SHARDS[0])
    stored = world.ledger.shard(VERSION, "validation", 0)
    assert ({"train": 2, "validation": 1}, ShardState.ACCEPTED) == (
        world.ledger.split_sizes(VERSION),
        stored and stored.state,
    )


@pytest.mark.parametrize("late_index", [0, 1])
def test_a_verdict_that_comes_late_for_the_former_number_does_not_close(late_index: int) -> None:
    """A slow handler writes it after the claim has moved; a shard that is gone stands in for none."""
    world = World()
    name = f"train-{late_index:05d}-of-00004.tfrecord"
    world.upload_shards(name)
    late = world.ledger.shard(VERSION, "train", late_index)
    delete(world, name)
    world.upload_shards(*[n for n in ALL_SHARDS if f"train-{late_index:05d}" not in n])
    assert late is not None
    world.ledger.record_shard(late)
    world.clock.move(minutes=10)
    sweep(world.services)
    assert world.ledger.latest_generation(VERSION) is None
    world.upload_shards(TRAIN_SHARDS[late_index])
    assert world.ledger.latest_generation(VERSION) is not None
