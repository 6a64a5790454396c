"""The order of an epoch."""

from __future__ import annotations

from shared.manifest import ManifestShard
from training_job.data.order import lane_seed, order_of_epoch

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
