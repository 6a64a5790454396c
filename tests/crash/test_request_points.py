"""SIGKILL after each request of an adapter that changes storage, on real Azurite: all scenarios end the same."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.crash.adapter_calls import request_sites, requests_seen, site_of_name
from tests.crash.azurite_world import AzuriteWorld, opened, serve_queues
from tests.crash.port_calls import PortCall
from tests.crash.process import SENDING, KilledProcess, State, Step, deliveries, killed, outcome
from tests.crash.scenarios import IN_STORAGE

pytestmark = [pytest.mark.slow, pytest.mark.azurite, pytest.mark.timeout(1800)]

WORKERS = 2


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A scenario that runs in its own world, and where its process dies."""

    scenario: str
    connection: str
    path: Path
    dies_at: str = ""
    """The name of the effect after whose first occurrence it dies; empty means never.

    A name, because a number would depend on speed: a message that is hidden for too short a time is taken twice.
    """
    repeated: bool = True
    """Whether the interrupted step is repeated; otherwise the timer replaces it."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of a scenario."""

    points: list[str]
    outcome: dict[str, object]
    deliveries: list[str]


@dataclass(kw_only=True)
class StorageProcess(KilledProcess):
    """A process that may die after any request to storage, and after any call of a port that remains a double."""

    dies_at: str = ""
    """See Plan."""

    def passed(self, point: str) -> None:
        """See Process."""
        super().passed(point)
        if point == self.dies_at:
            self.die()

    def around(self, call: PortCall, make: Callable[[], Any]) -> Any:
        """See Process."""
        return super().around(call, make) if call.port in ("JobService", "ModelRegistry", "Notifier") else make()


def run(plan: Plan) -> Result:
    """Run a scenario; if its process was killed, continue to the end."""
    scenario, path = IN_STORAGE[plan.scenario], plan.path
    new = AzuriteWorld(connection=plan.connection)
    new.create()
    State(world=scenario.begin(new, opened, serve_queues)).save(path)
    steps, timer = scenario.all_steps(serve_queues), scenario.timer(serve_queues)
    if not plan.dies_at:
        points = watched_run(StorageProcess(path=path, open=opened), steps)
    else:
        dying = StorageProcess(path=path, open=opened, dies_at=plan.dies_at)
        if not killed(lambda: watched_run(dying, steps)):
            raise RuntimeError(f"{plan.scenario} should have died after {plan.dies_at}, and lived")
        StorageProcess(path=path, open=opened).go_on(steps, instead=None if plan.repeated else timer)
        points = []
    left = opened(State.load(path).world)
    with contextlib.closing(left):
        return Result(points=points, outcome=outcome(left, left.services), deliveries=deliveries(left))


def watched_run(process: KilledProcess, steps: Sequence[Step]) -> list[str]:
    """Run a scenario and record its requests; return the names of its effects in order."""
    with requests_seen(process.passed):
        process.go_on(steps)
    return process.points


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    """Processes that run scenarios; they are forked, as those that die are."""
    with ProcessPoolExecutor(WORKERS, mp_context=multiprocessing.get_context("fork")) as workers:
        yield workers


@pytest.fixture(scope="module")
def undisturbed(
    unused_accounts: Iterator[str], pool: ProcessPoolExecutor, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Result]:
    """Every scenario with its requests in order, and its result."""
    folder = tmp_path_factory.mktemp("undisturbed")
    plans = [
        Plan(scenario=name, connection=next(unused_accounts), path=folder / str(number))
        for number, name in enumerate(IN_STORAGE)
    ]
    return dict(zip(IN_STORAGE, pool.map(run, plans), strict=True))


def test_the_scenarios_pass_every_request_of_the_adapters(undisturbed: dict[str, Result]) -> None:
    """Each place in the adapters' source that changes storage is one after which a process dies."""
    passed = {site_of_name(point) for result in undisturbed.values() for point in result.points if ": " in point}
    sites = request_sites()
    unreached = {f"{site} ({sites[site]})" for site in sites.keys() - passed}
    assert (set(), set()) == (unreached, passed - sites.keys())


def first_scenarios(undisturbed: dict[str, Result]) -> dict[str, str]:
    """Return the first scenario that passes each effect."""
    scenarios: dict[str, str] = {}
    for scenario, result in undisturbed.items():
        for point in result.points:
            scenarios.setdefault(point, scenario)
    return scenarios


def test_a_process_killed_after_any_request_is_continued_to_the_same_end(
    undisturbed: dict[str, Result], unused_accounts: Iterator[str], pool: ProcessPoolExecutor, tmp_path: Path
) -> None:
    """There is one death for each name of an effect; the step is repeated, or lost and swept, in turn."""
    plans = [
        Plan(
            scenario=scenario,
            connection=next(unused_accounts),
            path=tmp_path / str(number),
            dies_at=point,
            repeated=number % 2 == 0 or not IN_STORAGE[scenario].survives_loss,
        )
        for number, (point, scenario) in enumerate(first_scenarios(undisturbed).items())
    ]
    wrong = []
    for plan, result in zip(plans, pool.map(run, plans), strict=True):
        expected = undisturbed[plan.scenario]
        twice = result.deliveries != expected.deliveries and not plan.dies_at.startswith(SENDING)
        if result.outcome != expected.outcome or (plan.repeated and twice):
            wrong.append(f"{plan.scenario}: after {plan.dies_at}")
    assert [] == wrong
