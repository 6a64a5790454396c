"""Notifications of rejected shards: the first at once, the others in one summary."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from function_app.config.pipelines import Pipeline
from function_app.sweep.sweep import run_sweep
from tests.support.world import ALL_SHARDS, TRAIN_SHARDS, VERSION, World, pipeline, shard_content

MANY = [f"train-{index:05d}-of-00040.tfrecord" for index in range(40)]
BAD = shard_content(1, 12)


def reject(world: World, *names: str) -> None:
    """Upload shards with a label that is not allowed."""
    for name in names:
        world.deliver(world.put(name, BAD))


def received(world: World) -> list[tuple[str, dict[str, Any]]]:
    """Outcome and content of what the topic received."""
    return [(one.outcome, dict(one.content)) for one in world.topic.received]


def sweep_after(world: World, **duration: float) -> None:
    """Let time pass, and fire the timer."""
    world.clock.move(**duration)
    assert () == run_sweep(world.services).problems


def test_the_first_rejection_is_sent_at_once() -> None:
    """Each recipient gets the shard, the record, the problem, the fix, and the command with the pipeline's file."""
    world = World()
    known = {"digits": pipeline().within(file_name="of-the-bank.yaml")}
    world.services = replace(world.services, pipelines=known)
    reject(world, TRAIN_SHARDS[0])
    ((outcome, content),) = received(world)
    assert ("shard_rejected", TRAIN_SHARDS[0], 1) == (outcome, content["shard"], content["record_index"])
    assert content["text"] == (
        f"{VERSION}: shard {TRAIN_SHARDS[0]} is rejected: {TRAIN_SHARDS[0]}, record 1 at byte 65, feature label: "
        "expected 0 to 9, got 12. Correct it and upload it again under the same name. To see all problems on "
        f"your machine: landfall validate {TRAIN_SHARDS[0]} --pipeline of-the-bank.yaml"
    )
    assert 1 == len(world.people.received)


def test_further_rejections_are_one_summary_when_no_more_come() -> None:
    """Forty shards of one mistake are two notifications, not forty."""
    world = World()
    reject(world, *MANY[:20])
    sweep_after(world, seconds=30)
    reject(world, *MANY[20:])
    assert ["shard_rejected"] == [outcome for outcome, _ in received(world)]
    sweep_after(world, minutes=3)
    sweep_after(world, minutes=5)
    (_, (outcome, content)) = received(world)
    assert ("shards_rejected", 40, {"value_out_of_range": 39}) == (outcome, content["num_rejected"], content["codes"])
    assert f"{VERSION}: 39 more shards are rejected, 40 in all: {MANY[1]}, record 1" in content["text"]
    assert "; and 29 more shards. Correct it" in content["text"]


def test_while_more_are_rejected_all_the_time_a_summary_comes_every_hour() -> None:
    """A writer that goes wrong for a day is noticed, and sends no notification for each shard."""
    world = World()
    reject(world, MANY[0], MANY[1])
    sweep_after(world, minutes=3)
    for number in range(30):
        world.clock.move(minutes=4)
        reject(world, MANY[2 + number])
        sweep_after(world, seconds=10)
    outcomes = [outcome for outcome, _ in received(world)]
    assert ("shard_rejected", 3) == (outcomes[0], outcomes.count("shards_rejected"))


def test_what_was_corrected_meanwhile_is_not_in_the_summary() -> None:
    """There is nothing left to do about it."""
    world = World()
    reject(world, *TRAIN_SHARDS[:2])
    world.upload_shards(*ALL_SHARDS)
    sweep_after(world, minutes=10)
    assert ["shard_rejected"] == [outcome for outcome, _ in received(world)]


def test_a_shard_that_is_rejected_again_is_in_the_next_summary() -> None:
    """This holds even within minutes."""
    world = World()
    reject(world, MANY[0])
    sweep_after(world, minutes=5)
    world.deliver(world.put(MANY[0], b"<html>"))
    sweep_after(world, minutes=5)
    assert ["shard_rejected", "shards_rejected"] == [outcome for outcome, _ in received(world)]


def test_a_file_that_cannot_have_its_place_is_reported_once() -> None:
    """It has no verdict of its own, so a summary would not name it."""
    world = World()
    world.upload_shards(TRAIN_SHARDS[0])
    for _ in range(2):
        world.deliver(world.put("train-00000-of-00009.tfrecord"))
    ((outcome, content),) = received(world)
    assert ("shard_rejected", "set_size_contradictory") == (outcome, content["reasons"][0]["code"])


def test_a_pipeline_without_recipients_writes_nothing() -> None:
    """The history and `status` say what is rejected."""
    world = World()
    silent: Pipeline = pipeline(notify=())
    world.change_pipeline(notify=silent.notify)
    reject(world, *MANY[:3])
    sweep_after(world, minutes=5)
    assert [] == list(world.ledger.notification_rows)
