"""How an attempt continues where another one stopped."""

from __future__ import annotations

from typing import Any

import pytest

from shared.job_arguments import JobArguments
from shared.manifest import ManifestShard
from training_job.checkpoints.position import Position, batch_shape, resumed
from training_job.errors import CheckpointError
from training_job.rank_plan import plan_training

SHARD = ManifestShard(split="train", index=0, num_shards=1, name="s", size_bytes=1, crc32c="0" * 8, num_records=1000)


def arguments(**options: Any) -> JobArguments:
    return JobArguments(manifest="m", data="d", report="r", model="o", checkpoints="c", **options)


def interrupted(**members: Any) -> Position:
    return Position(
        **{
            "epoch": 2,
            "step_of_epoch": 5,
            "step": 35,
            "seed": 0,
            "fingerprint": "f",
            "num_lanes": 2,
            "global_batch_size": 64,
            **members,
        }
    )


def start(world_size: int, latest: Position | None, **options: Any) -> Position:
    job = arguments(**options)
    plan = plan_training("train", [SHARD], batch_shape(job, world_size, latest))
    return resumed(latest, job, "f", plan)


def test_a_first_attempt_starts_at_the_beginning() -> None:
    """The position has the data, the order and the lanes with which it will be resumed."""
    expected = Position(seed=3, fingerprint="f", num_lanes=2, global_batch_size=64)
    assert expected == start(2, None, seed=3)


def test_the_same_world_goes_on_at_the_same_step() -> None:
    """Nothing of the position changes."""
    assert interrupted() == start(2, interrupted())


def test_the_running_epochs_sums_go_on() -> None:
    """Loss, accuracy and top-5 over what the epoch has seen."""
    assert (64.0, 9.0, 8.0, 7.0) == start(2, interrupted(sums=(64.0, 9.0, 8.0, 7.0))).sums


def test_a_smaller_world_with_the_same_global_batch_keeps_the_lanes() -> None:
    """One rank with batch 64 reads the two lanes that two ranks with batch 32 had."""
    assert interrupted() == start(1, interrupted(), per_process_batch_size=64)


def test_another_global_batch_goes_on_after_the_same_part_of_the_epoch() -> None:
    """5 steps of 64 are 10 steps of 32."""
    found = start(1, interrupted())
    assert (10, 1, 32) == (found.step_of_epoch, found.num_lanes, found.global_batch_size)


def test_lanes_that_the_world_does_not_divide_are_given_up() -> None:
    """Four ranks cannot share two lanes."""
    assert 4 == start(4, interrupted(), per_process_batch_size=16).num_lanes


def test_lanes_that_were_asked_for_go_before_those_of_the_checkpoint() -> None:
    """An option is an option."""
    assert 4 == start(2, interrupted(), num_lanes=4).num_lanes


@pytest.mark.parametrize(
    ("latest", "message"),
    [
        (interrupted(fingerprint="g"), r"belongs to other data \(fingerprint\): expected f, got g"),
        (interrupted(seed=1), r"belongs to other order \(seed\): expected 0, got 1"),
        (interrupted(sums=(2.0,) * 2003), r"belongs to other metrics \(numbers in .* sums\): expected 4, got 2003"),
    ],
)
def test_a_checkpoint_of_another_training_is_refused(latest: Position, message: str) -> None:
    """Going on from it would mix two data sets, two orders, or two ways to add up."""
    with pytest.raises(CheckpointError, match=message):
        start(2, latest)
