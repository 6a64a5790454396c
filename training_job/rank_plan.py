"""Which rank reads which records, in which order: pure functions from a split's shards to equal shares.

An epoch's order follows from the seed alone, so it is the same on every machine and in every run. Taken shard by
shard in that order, the epoch's records form one sequence. It is cut into *lanes* of equal length (within one
record). A step takes the same number of records from every lane, and a rank owns ``num_lanes / world_size`` of them.
What a step trains on therefore depends on the number of lanes, never on the number of ranks: two ranks with a lane
each train together on what one rank with both lanes trains on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from shared.manifest import ManifestShard
from training_job.errors import PlanError

Remainder = Literal["drop", "pad"]


@dataclass(frozen=True, kw_only=True)
class RecordRange:
    """The records ``start`` ≤ i < ``stop`` of one shard."""

    shard: str
    start: int
    stop: int


Lane = tuple[RecordRange, ...]


@dataclass(frozen=True, kw_only=True)
class BatchShape:
    """The parts of a global batch."""

    world_size: int
    per_process_batch_size: int
    num_lanes: int
    accumulation: int = 1
    """Batches of each process that are accumulated into one step."""

    def __post_init__(self) -> None:
        """Raise PlanError if ranks would have unequal shares."""
        if self.num_lanes % self.world_size:
            raise PlanError(
                f"{self.num_lanes} lanes cannot be shared equally by {self.world_size} ranks: set num_lanes "
                f"to a multiple of the world size."
            )
        if self.global_batch_size % self.num_lanes:
            raise PlanError(
                f"A global batch of {self.description} cannot be taken equally from {self.num_lanes} lanes."
            )

    @property
    def global_batch_size(self) -> int:
        """Records of one step, over all ranks."""
        return self.world_size * self.per_process_batch_size * self.accumulation

    @property
    def description(self) -> str:
        """The global batch size and its factors, for messages."""
        accumulated = f" x {self.accumulation} accumulated" if self.accumulation > 1 else ""
        return f"{self.global_batch_size} ({self.world_size} ranks x {self.per_process_batch_size}{accumulated})"

    @property
    def records_per_lane(self) -> int:
        """Records that one step takes from each lane."""
        return self.global_batch_size // self.num_lanes


@dataclass(frozen=True, kw_only=True)
class SplitPlan:
    """How one split is read in any epoch; `lanes_of_epoch` says which records that means in one epoch."""

    split: str
    num_records: int
    num_shards: int
    batch: BatchShape
    remainder: Remainder
    steps: int
    """Steps of one epoch, the same for every rank."""
    dropped_records: int
    """Records that one epoch leaves out; others in each epoch, because the order changes."""
    padded_records: int
    """Records that one epoch uses a second time (training), or with weight 0 (evaluation)."""

    def summary(self) -> dict[str, Any]:
        """Return what the report states."""
        members = asdict(self)
        return {**members, "batch": {**members["batch"], "global_batch_size": self.batch.global_batch_size}}


def plan_training(
    split: str, shards: Sequence[ManifestShard], batch: BatchShape, remainder: Remainder = "drop"
) -> SplitPlan:
    """Plan a split to train on. Raises PlanError if it holds less than one global batch."""
    plan = _plan(split, shards, batch, remainder)
    if plan.num_records < batch.global_batch_size:
        raise PlanError(
            f"Split {split!r} has {plan.num_records} records in {plan.num_shards} shards, less than one global batch "
            f"of {batch.description}. "
            f"Use fewer ranks, a smaller per-process batch size, or more data."
        )
    return plan


def plan_evaluation(split: str, shards: Sequence[ManifestShard], batch: BatchShape) -> SplitPlan:
    """Plan a split to evaluate on: every record counts once, and ranks that have fewer get padding of weight 0.

    Raises PlanError if the split is empty.
    """
    plan = _plan(split, shards, batch, "pad")
    if not plan.num_records:
        raise PlanError(f"Split {split!r} has no records to evaluate on in its {plan.num_shards} shards.")
    return plan


def _plan(split: str, shards: Sequence[ManifestShard], batch: BatchShape, remainder: Remainder) -> SplitPlan:
    num_records = sum(s.num_records for s in shards)
    steps, rest = divmod(num_records, batch.global_batch_size)
    if remainder == "pad" and rest:
        steps += 1
    used = steps * batch.global_batch_size
    return SplitPlan(
        split=split,
        num_records=num_records,
        num_shards=len(shards),
        batch=batch,
        remainder=remainder,
        steps=steps,
        dropped_records=max(0, num_records - used),
        padded_records=max(0, used - num_records),
    )


def cut_lanes(shards: Sequence[ManifestShard], num_lanes: int) -> tuple[Lane, ...]:
    """Cut the shards, in this order, into lanes whose lengths differ by one record at most."""
    total = sum(s.num_records for s in shards)
    bounds = [lane * total // num_lanes for lane in range(num_lanes + 1)]
    return tuple(tuple(_cut(shards, bounds[lane], bounds[lane + 1])) for lane in range(num_lanes))


def _cut(shards: Sequence[ManifestShard], start: int, stop: int) -> Iterator[RecordRange]:
    first = 0
    for shard in shards:
        after = first + shard.num_records
        if max(first, start) < min(after, stop):
            yield RecordRange(shard=shard.name, start=max(start - first, 0), stop=min(after, stop) - first)
        first = after


def order_of_epoch(shards: Sequence[ManifestShard], *, seed: int, epoch: int) -> tuple[ManifestShard, ...]:
    """Return the shards in the order of one epoch."""
    return tuple(sorted(shards, key=lambda shard: _digest(seed, epoch, shard.name)))


def lane_seed(seed: int, epoch: int, lane: int) -> int:
    """Return the seed of one lane in one epoch, for its order and its augmentation; 0 to 2³¹ - 1."""
    return int.from_bytes(_digest(seed, epoch, f"lane {lane}")[:4], "big") >> 1


def _digest(*parts: object) -> bytes:
    # A digest rather than a generator's stream, so that it depends on nothing that was drawn before.
    return hashlib.sha256("\t".join(map(str, parts)).encode()).digest()
