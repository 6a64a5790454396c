"""A storm over storage alone: real adapters and SDK retries against 429, 503, 500 and lost answers."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Mapping
from functools import partial

import pytest

from local_azure.azurite import Azurite
from shared.errors import LandfallError
from tests.chaos.faults import storage_faults
from tests.chaos.storage_proxy import StorageProxy, no_faults, storage_proxy, through
from tests.crash.azurite_world import AzuriteWorld, serve_queues
from tests.crash.azurite_world import opened as open_world
from tests.crash.process import Step, outcome
from tests.crash.scenario import Scenario
from tests.crash.scenarios import IN_STORAGE
from tests.support.threads import at_once
from tests.support.world import World

pytestmark = [pytest.mark.azurite, pytest.mark.timeout(1200)]

SCENARIOS = ("registered", "preempted", "repaired", "retrained", "canceled by a person", "quarantined")
SHARE, IN_A_ROW = 0.08, (1, 1, 3)
"""Share of requests at which a fault begins, and its length in requests; three outlast the SDK's retries."""
MAX_DELIVERIES = 40
CALM = 2
"""Rounds of the timer after the storm, which find everything that was lost."""


def delivered(step: Step, world: AzuriteWorld) -> None:
    """Repeat a step until it succeeds, as the Functions host repeats a message."""
    for _ in range(MAX_DELIVERIES):
        with contextlib.suppress(LandfallError):
            step(world)
            return
    raise AssertionError(f"a step failed {MAX_DELIVERIES} times in a row")


def played(scenario: Scenario, world: AzuriteWorld, proxy: StorageProxy) -> dict[str, object]:
    """Play a scenario in a storm that ends before the last rounds of the timer; return the final state."""
    with contextlib.ExitStack() as open_worlds:

        def opened(closed: World) -> AzuriteWorld:
            return open_worlds.enter_context(contextlib.closing(open_world(closed)))

        world.create()
        scenario.begin(world, opened, serve_queues)
        inside = opened(world)
        steps = scenario.all_steps(serve_queues)
        proxy.draw = storage_faults(random.Random(scenario.name), SHARE, IN_A_ROW)  # noqa: S311 (a storm, not secrets)
        for number, step in enumerate(steps):
            if number == len(steps) - CALM:
                proxy.draw = no_faults
            delivered(step, inside)
        return outcome(inside, inside.services)


def played_twice(
    ports: Mapping[str, int], calm: str, stormy: str, number: int
) -> tuple[dict[str, object], dict[str, object], int]:
    """Play a scenario calmly and in a storm; return both final states and the number of failed requests."""
    scenario = IN_STORAGE[SCENARIOS[number]]
    with storage_proxy(ports) as (proxy, faulty_ports):
        expected = played(scenario, AzuriteWorld(connection=calm), proxy)
        seen = played(scenario, AzuriteWorld(connection=stormy, app_connection=through(stormy, faulty_ports)), proxy)
        return expected, seen, proxy.done.total()


@pytest.mark.parametrize("numbers", [range(2), pytest.param(range(2, len(SCENARIOS)), marks=pytest.mark.slow)])
def test_a_storm_over_storage_does_not_change_how_a_run_ends(
    numbers: range, azurite: Azurite, unused_accounts: Iterator[str]
) -> None:
    """Requests are refused, or lost before or after their effect; some until the SDK gives up."""
    results = at_once(
        [partial(played_twice, azurite.ports, next(unused_accounts), next(unused_accounts), n) for n in numbers]
    )
    changed = [SCENARIOS[n] for n, (expected, seen, _) in zip(numbers, results, strict=True) if expected != seen]
    calm = [SCENARIOS[n] for n, (_, _, failed) in zip(numbers, results, strict=True) if not failed]
    assert ([], []) == (changed, calm)
