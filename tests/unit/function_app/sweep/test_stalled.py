"""Versions that stay open: one notification says which shards are missing."""

from __future__ import annotations

from function_app.config.pipelines import Watch
from function_app.sweep.sweep import run_sweep
from tests.support.world import ALL_SHARDS, TRAIN_SHARDS, VERSION, World


def stalled(world: World, hours: float) -> list[str]:
    """Let time pass and sweep; return what the people received about it in all."""
    world.clock.move(hours=hours)
    run_sweep(world.services)
    return [n.content["text"] for n in world.people.received if n.outcome == "version_stalled"]


def test_a_version_that_waits_too_long_is_notified_with_its_missing_shards() -> None:
    """A day, unless the pipeline says otherwise."""
    world = World()
    world.upload_shards(TRAIN_SHARDS[0])
    assert [] == stalled(world, 23)
    (text,) = stalled(world, 2)
    expected = (
        "digits/v1 is not whole, and no shard has come for 1 d 1 h. Missing: train-00001-of-00002, validation-*"
    )
    assert expected == text[: len(expected)]


def test_a_stalled_version_is_notified_once() -> None:
    """However often the sweep comes by; a shard that comes and nothing after it is another time."""
    world = World()
    world.upload_shards(TRAIN_SHARDS[0])
    counts = [len(stalled(world, 25)) for _ in range(3)]
    world.upload_shards(TRAIN_SHARDS[1])
    counts += [len(stalled(world, 25)) for _ in range(2)]
    assert [1, 1, 1, 2, 2] == counts


def test_a_rejected_shard_is_missing_too() -> None:
    """No one has to look for the difference in a night."""
    world = World()
    world.upload_shards(*ALL_SHARDS[1:])
    world.deliver(world.put(TRAIN_SHARDS[0], b"<html>"))
    (text,) = stalled(world, 25)
    assert "Missing: train-00000-of-00002." in text


def test_the_pipeline_says_how_long() -> None:
    """In seconds."""
    world = World()
    world.change_pipeline(watch=Watch(stalled_after_s=3600))
    world.upload_shards(TRAIN_SHARDS[0])
    assert (0, 1) == (len(stalled(world, 0.9)), len(stalled(world, 0.2)))


def test_a_whole_version_is_not_stalled() -> None:
    """It has closed, and whatever comes next is the run's."""
    world = World()
    world.upload_version()
    assert ([], []) == (stalled(world, 1), [line for line in world.actions(VERSION) if line == "version_stalled"])


def test_a_closed_version_whose_new_shard_was_rejected_is_notified() -> None:
    """Its data as it is now cannot be trained on."""
    world = World()
    world.upload_version()
    world.deliver(world.put(TRAIN_SHARDS[0], b"<html>"))
    assert 1 == len(stalled(world, 25))
