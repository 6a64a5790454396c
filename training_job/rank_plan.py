"""Who reads what: a pure function from a split's shards to equal shares, with equal steps for all ranks.

The epoch's records, shards in the epoch's order, are one sequence. It is cut into *lanes* of equal length
(within one record). A step takes the same number of records from every lane, and a rank owns
``num_lanes / world_size`` of them. What a step trains on therefore depends on the number of lanes, never on
the number of ranks: two ranks with a lane each see together what one rank with both lanes sees.
"""

from __future__ import annotations

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
    """How a global batch is made up."""

    world_size: int
    per_process_batch_size: int
    num_lanes: int
    accumulation: int = 1
    """Batches of each process that make one step."""

    def __post_init__(self) -> None:
        """Raise PlanError where ranks would be unequal."""
        if self.num_lanes % self.world_size:
            raise PlanError(
                f"{self.num_lanes} lanes cannot be shared equally by {self.world_size} ranks: the number of "
                f"lanes should be a multiple of the world size."
            )
        if self.global_batch_size % self.num_lanes:
            raise PlanError(f"A global batch of {self.words} cannot be taken equally from {self.num_lanes} lanes.")

    @property
    def global_batch_size(self) -> int:
        """Records of one step, over all ranks."""
        return self.world_size * self.per_process_batch_size * self.accumulation

    @property
    def words(self) -> str:
        """The global batch as a message says it: what it is and what it is made of."""
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
    """Of one epoch, the same for every rank."""
    dropped_records: int
    """Records that one epoch leaves out: others in each epoch, for the order changes."""
    padded_records: int
    """Records that one epoch shows a second time (training), or that count for nothing (evaluation)."""

    def summary(self) -> dict[str, Any]:
        """Return what the report states."""
        members = asdict(self)
        return {**members, "batch": {**members["batch"], "global_batch_size": self.batch.global_batch_size}}


def plan_training(
    split: str, shards: Sequence[ManifestShard], batch: BatchShape, remainder: Remainder = "drop"
) -> SplitPlan:
    """Plan a split to train on. Raises PlanError where it holds less than one global batch."""
    plan = _plan(split, shards, batch, remainder)
    if plan.num_records < batch.global_batch_size:
        raise PlanError(
            f"Split {split!r} has {plan.num_records} records in {plan.num_shards} shards, less than one global batch "
            f"of {batch.words}. "
            f"Use fewer ranks, a smaller per-process batch size, or more data."
        )
    return plan


def plan_evaluation(split: str, shards: Sequence[ManifestShard], batch: BatchShape) -> SplitPlan:
    """Plan a split to evaluate on: every record counts once, and ranks that have fewer get padding of weight 0.

    Raises PlanError where the split is empty.
    """
    plan = _plan(split, shards, batch, "pad")
    if not plan.num_records:
        raise PlanError(f"Split {split!r} should have records to evaluate on, has none in {plan.num_shards} shards.")
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
    """Cut the shards, in the order given, into lanes whose lengths differ by one record at most."""
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
