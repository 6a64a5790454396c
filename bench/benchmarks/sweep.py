"""What a sweep costs: storage's whole listing against the ledger, when nothing was missed, as nearly always.

100,000 blobs are listed from memory, which shows what the sweep itself computes; 4,000 from a real listing and real
tables (Azurite, which takes minutes to be filled with more), where every request is counted. Versions have 1,000
shards each and are closed; one that is open is measured beside them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench.figures import Context, Figure, median
from bench.sweep_world import SHARDS_PER_VERSION, SweepWorld, azurite_world, memory_world
from function_app.sweep.sweep import run_sweep

IN_MEMORY, ON_AZURITE = 100_000, 4_000
SAMPLES = 5
MAX_S = 30.0
"""Of computing for 100,000 blobs: a tenth of the timer's five minutes."""
MAX_OPERATIONS = 10.0
"""For 1,000 blobs that have not changed: a hundredth of looking at each."""


def run(context: Context) -> list[Figure]:
    """Sweep some twenty times: about four minutes on two cores, most of it filling Azurite."""
    context.say(f"{IN_MEMORY:,} blobs in memory")
    in_memory = memory_world(context, IN_MEMORY)
    first_s = timed(in_memory)
    unchanged_s = median(timed(in_memory) for _ in range(SAMPLES))
    context.say(f"filling Azurite with {ON_AZURITE:,} blobs")
    with azurite_world(context, ON_AZURITE) as world:
        first = measured(world)
        context.say(f"the first look took {first[0]:.1f} s")
        unchanged = [measured(world) for _ in range(SAMPLES)]
        world.open_version(SHARDS_PER_VERSION)
        opened = [measured(world) for _ in range(SAMPLES)]
    return [*memory_figures(first_s, unchanged_s), *azurite_figures(first, unchanged, opened)]


def timed(world: SweepWorld) -> float:
    """Sweep once; return seconds. Raises BenchmarkError where the sweep found something to do."""
    begun = time.perf_counter()
    world.check(run_sweep(world.services))
    return time.perf_counter() - begun


def measured(world: SweepWorld) -> tuple[float, int]:
    """Sweep once; return seconds, and requests to tables and blobs."""
    before = world.operations
    return timed(world), world.operations - before


def memory_figures(first_s: float, unchanged_s: float) -> Iterator[Figure]:
    """The computing of 100,000 blobs."""
    name = f"sweep of {IN_MEMORY:,} blobs in memory"
    yield Figure(name=f"{name}, nothing changed", value=unchanged_s, unit="s", at_most=MAX_S)
    yield Figure(name=f"{name}, the first look", value=first_s, unit="s")


def azurite_figures(
    first: tuple[float, int], unchanged: list[tuple[float, int]], opened: list[tuple[float, int]]
) -> Iterator[Figure]:
    """Requests and time of the real listing, and what one open version adds."""
    name, thousands = f"sweep of {ON_AZURITE:,} blobs", ON_AZURITE / 1000
    operations = median(float(count) for _, count in unchanged)
    yield Figure(
        name="operations for 1,000 blobs that have not changed",
        value=operations / thousands,
        unit="operations",
        at_most=MAX_OPERATIONS,
    )
    yield Figure(name=f"{name}, nothing changed", value=median(s for s, _ in unchanged), unit="s on Azurite")
    yield Figure(name=f"{name}, the first look", value=first[0], unit="s on Azurite")
    yield Figure(name="operations for 1,000 blobs, the first look", value=first[1] / thousands, unit="operations")
    more = median(float(count) for _, count in opened) - operations
    yield Figure(
        name=f"operations that an open version of {SHARDS_PER_VERSION:,} adds", value=more, unit="operations"
    )
    yield Figure(name=f"{name} and an open version", value=median(s for s, _ in opened), unit="s on Azurite")
