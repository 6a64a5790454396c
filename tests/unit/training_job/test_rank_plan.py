"""Who reads what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.manifest import ManifestShard
from training_job.errors import PlanError
from training_job.rank_plan import BatchShape, cut_lanes, lane_seed, order_of_epoch, plan_evaluation, plan_training


def shards(*sizes: int) -> list[ManifestShard]:
    return [
        ManifestShard(
            split="train", index=i, num_shards=len(sizes), name=f"s{i}", size_bytes=1, crc32c="0" * 8, num_records=n
        )
        for i, n in enumerate(sizes)
    ]


def batch(world_size: int = 2, per_process: int = 4, num_lanes: int | None = None) -> BatchShape:
    return BatchShape(world_size=world_size, per_process_batch_size=per_process, num_lanes=num_lanes or world_size)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=9), st.integers(1, 12))
def test_lanes_hold_every_record_once_and_differ_by_one(sizes: list[int], num_lanes: int) -> None:
    """The sizes of the shards do not matter, and there may be more lanes than shards."""
    lanes = cut_lanes(shards(*sizes), num_lanes)
    records = [(part.shard, i) for lane in lanes for part in lane for i in range(part.start, part.stop)]
    assert [(f"s{s}", i) for s, size in enumerate(sizes) for i in range(size)] == records
    lengths = [sum(part.stop - part.start for part in lane) for lane in lanes]
    assert max(lengths) - min(lengths) <= 1


@given(st.lists(st.integers(0, 40), min_size=1, max_size=9), st.integers(1, 4), st.integers(1, 5), st.integers(1, 3))
def test_no_lane_runs_dry_before_its_last_step(sizes: list[int], world: int, share: int, per_rank: int) -> None:
    """Dropping the remainder, every lane has what all steps take from it."""
    shape = batch(world, share * per_rank, world * per_rank)
    if sum(sizes) >= shape.global_batch_size:
        plan = plan_training("train", shards(*sizes), shape)
        lengths = [sum(p.stop - p.start for p in lane) for lane in cut_lanes(shards(*sizes), shape.num_lanes)]
        assert min(lengths) >= plan.steps * shape.records_per_lane


def test_the_remainder_is_dropped_and_counted() -> None:
    """21 records at 8 a step make two steps, and five records wait for another epoch."""
    plan = plan_training("train", shards(7, 7, 7), batch())
    assert (2, 5, 0) == (plan.steps, plan.dropped_records, plan.padded_records)


def test_the_remainder_is_padded_and_counted() -> None:
    """21 records at 8 a step make three steps, and three records are shown twice."""
    plan = plan_training("train", shards(7, 7, 7), batch(), "pad")
    assert (3, 0, 3) == (plan.steps, plan.dropped_records, plan.padded_records)


def test_an_evaluation_leaves_nothing_out() -> None:
    """Every record counts, also where the split is smaller than one global batch."""
    plan = plan_evaluation("validation", shards(3), batch())
    assert (1, 0, 5) == (plan.steps, plan.dropped_records, plan.padded_records)


def test_a_split_below_one_global_batch_is_refused_with_numbers() -> None:
    """Training on it would be no training; the message has what is there and what is needed."""
    with pytest.raises(PlanError, match=r"has 7 records in 2 shards, less than .* of 8 \(2 ranks x 4\)"):
        plan_training("train", shards(3, 4), batch())


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ({"world_size": 2, "num_lanes": 3}, "3 lanes cannot be shared equally by 2 ranks"),
        ({"world_size": 1, "per_process": 4, "num_lanes": 3}, "batch of 4 .* cannot be taken equally from 3 lanes"),
    ],
)
def test_unequal_ranks_are_refused(shape: dict[str, int], message: str) -> None:
    """No plan in which one rank would have more to do than another."""
    with pytest.raises(PlanError, match=message):
        batch(**shape)


def test_an_empty_split_cannot_be_evaluated() -> None:
    """An average over nothing is no metric."""
    with pytest.raises(PlanError, match="has no records to evaluate on"):
        plan_evaluation("validation", [], batch())


SHARDS = tuple(
    ManifestShard(split="train", index=i, num_shards=20, name=f"s{i}", size_bytes=1, crc32c="0" * 8, num_records=1)
    for i in range(20)
)


def names(seed: int, epoch: int) -> list[str]:
    return [shard.name for shard in order_of_epoch(SHARDS, seed=seed, epoch=epoch)]


def test_an_epoch_has_every_shard_once() -> None:
    """A permutation, whatever the seed."""
    assert sorted(shard.name for shard in SHARDS) == sorted(names(3, 4))


def test_the_order_is_the_seeds_and_the_epochs() -> None:
    """The same twice, another for another seed and another epoch."""
    assert names(1, 1) == names(1, 1)
    assert 3 == len({tuple(names(*which)) for which in ((1, 1), (1, 2), (2, 1))})


def test_the_order_does_not_depend_on_how_shards_were_listed() -> None:
    """A manifest that lists them backwards is trained on in the same order."""
    backwards = order_of_epoch(SHARDS[::-1], seed=1, epoch=1)
    assert names(1, 1) == [shard.name for shard in backwards]


def test_lanes_have_seeds_of_their_own_that_fit_into_an_int32() -> None:
    """A thousand of them, all different."""
    seeds = {lane_seed(seed, epoch, lane) for seed in range(10) for epoch in range(10) for lane in range(10)}
    assert 1000 == len(seeds)
    assert all(0 <= seed < 1 << 31 for seed in seeds)
