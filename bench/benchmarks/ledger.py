"""Ledger cost per shard, in versions of 100, 1,000 and 10,000 shards, on real tables (Azurite).

The cost must not grow with the number of shards, because each bucket has a counter and nothing is listed. Shards go
through the step that judges them, with everything except the ledger in memory. Most verdicts of the largest version
are written in bulk beforehand; the benchmark measures the others and the closing, which reads all verdicts. The
three sizes take turns, so that a slowdown of the machine affects all of them. Then one worker judges small shards
with real storage, see `bench.worker_rate`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.figures import BenchmarkError, Context, Figure, median
from bench.ledger_world import DATASET, Cost, LedgerWorld, ledger_world
from bench.worker_rate import worker_figures
from function_app.domain.records import DatasetVersion

ROUNDS = 10
SMALL, MIDDLE, LARGE = 100, 1_000, 10_000
LARGE_STEP = 200
"""Shards of the largest version that are judged per round. 8,000 have verdicts before the first round."""
MAX_RATIO = 1.2


@dataclass(kw_only=True)
class Samples:
    """Measurements for versions of one size."""

    num_shards: int
    operations: list[float] = field(default_factory=list)
    """Table operations per shard, one item per round."""
    durations_s: list[float] = field(default_factory=list)
    """Seconds per shard with several shards at once, one item per round."""
    closings: list[Cost] = field(default_factory=list)
    """Costs of judging the last shard, which closes the version."""

    def add(self, cost: Cost, num_shards: int) -> None:
        """Add the total cost of some shards."""
        self.operations.append(cost.operations / num_shards)
        self.durations_s.append(cost.duration_s / num_shards)

    def operations_per_shard(self) -> float:
        """Table operations per shard, including its part of the closing."""
        closing = sum(cost.operations for cost in self.closings) / len(self.closings)
        return median(self.operations) + closing / self.num_shards

    def s_per_shard(self) -> float:
        """Seconds per shard, including its part of the closing."""
        closing_s = sum(cost.duration_s for cost in self.closings) / len(self.closings)
        return median(self.durations_s) + closing_s / self.num_shards


def run(context: Context) -> list[Figure]:
    """Judge about 6,000 shards: about four minutes on two cores."""
    small, middle, large = (Samples(num_shards=n) for n in (SMALL, MIDDLE, LARGE))
    with ledger_world(context) as world:
        middle_paths = shuffled(world.begin(version(MIDDLE), MIDDLE))
        large_paths = shuffled(world.begin(version(LARGE), LARGE, known=LARGE - ROUNDS * LARGE_STEP))
        for number in range(ROUNDS):
            own = version(SMALL, number)
            finish(world, own, shuffled(world.begin(own, SMALL)), small)
            judge_round(world, middle_paths, number, middle)
            judge_round(world, large_paths, number, large)
            times = ", ".join(f"{s.durations_s[-1] * 1000:.1f}" for s in (small, middle, large))
            context.say(f"round {number + 1} of {ROUNDS}: {times} ms per shard of 100, 1,000 and 10,000")
        close(world, version(MIDDLE), middle_paths[-1], middle)
        close(world, version(LARGE), large_paths[-1], large)
    context.say("one worker, compared with the bare requests")
    return [*figures(small, middle, large), *worker_figures(context)]


def version(num_shards: int, number: int = 0) -> DatasetVersion:
    """Return the n-th version of a size."""
    return DatasetVersion(dataset=DATASET, version=f"v{num_shards}.{number}")


def shuffled(paths: Sequence[str]) -> list[str]:
    """Shuffle uploads. The same number of paths gives the same order, so that two runs can be compared."""
    return random.Random(len(paths)).sample(paths, len(paths))  # noqa: S311 (an order, no secret)


def finish(world: LedgerWorld, own: DatasetVersion, paths: Sequence[str], samples: Samples) -> None:
    """Judge a version from its first shard to its closing."""
    samples.add(world.judge(paths[:-1]), len(paths) - 1)
    close(world, own, paths[-1], samples)


def judge_round(world: LedgerWorld, paths: Sequence[str], number: int, samples: Samples) -> None:
    """Judge one round's shards of a version, except the last one, which closes it."""
    step = len(paths) // ROUNDS
    part = paths[number * step : min((number + 1) * step, len(paths) - 1)]
    samples.add(world.judge(part), len(part))


def close(world: LedgerWorld, own: DatasetVersion, last: str, samples: Samples) -> None:
    """Judge the last shard. Raises BenchmarkError if that does not close the version."""
    if world.is_closed(own):
        raise BenchmarkError(f"{own} was closed before its last shard: its counters are wrong")
    samples.closings.append(world.judge([last]))
    if not world.is_closed(own):
        raise BenchmarkError(f"{own} is open after its last shard: its counters are wrong")


def figures(small: Samples, middle: Samples, large: Samples) -> list[Figure]:
    """Return the two promises and the figures from which they are computed."""
    operations = large.operations_per_shard() / small.operations_per_shard()
    duration = large.s_per_shard() / small.s_per_shard()
    sizes = (small, middle, large)
    return [
        Figure(name="operations per shard, 10,000 against 100", value=operations, unit="ratio", at_most=MAX_RATIO),
        Figure(name="time per shard, 10,000 against 100", value=duration, unit="ratio", at_most=MAX_RATIO),
        *(
            Figure(
                name=f"operations per shard of {s.num_shards:,}", value=s.operations_per_shard(), unit="operations"
            )
            for s in sizes
        ),
        *(
            Figure(name=f"time per shard of {s.num_shards:,}", value=s.s_per_shard() * 1000, unit="ms on Azurite")
            for s in sizes
        ),
        Figure(name="operations of closing 10,000", value=float(large.closings[0].operations), unit="operations"),
        Figure(name="time of closing 10,000", value=large.closings[0].duration_s, unit="s on Azurite"),
    ]
