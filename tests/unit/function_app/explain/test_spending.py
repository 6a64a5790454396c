"""What a span of time cost: only the time with nodes within it, of runs that have ended and of those that train."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from function_app.explain.run_description import describe_run
from function_app.explain.spending import spending
from function_app.runs.comparison import compared
from tests.support.world import World
from tests.unit.function_app.planning.worlds import facts
from tests.unit.function_app.web.client import call, error, look

WEEK = timedelta(days=7)


def world_with_runs() -> World:
    """Two nodes at 3.50 an hour trained for 2 hours nine days ago and for 3 hours now, the last one goes on."""
    world = World()
    world.change_machines(vm_size="Standard_NC24ads_A100_v4", price_per_node_hour=3.5)
    for version, hours, days_after in (("v1", 2, 9), ("v2", 3, 0)):
        run = world.train(version=version)
        world.jobs.become(run.run_id, "Running")
        run = world.follow(run)
        world.clock.move(hours=hours)
        if days_after:
            world.finish(run)
        world.clock.move(days=days_after)
    return world


def rounded(*numbers: float | None) -> tuple[float | None, ...]:
    """Numbers without the microseconds by which the world's clock ticks."""
    return tuple(number if number is None else round(number, 3) for number in numbers)


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        (timedelta(hours=1), (1, 2.0, 7.0)),
        (WEEK, (1, 6.0, 21.0)),
        (timedelta(days=30), (2, 10.0, 35.0)),
        (timedelta(days=9, hours=4), (2, 8.0, 28.0)),  # half of the first one
    ],
)
def test_only_time_with_nodes_within_the_span_counts(span: timedelta, expected: tuple[int, float, float]) -> None:
    """Number of runs, node-hours, cost."""
    found = spending(span, world_with_runs().services)
    assert expected == rounded(len(found.runs), found.node_hours, found.cost)
    assert found.is_whole


def test_what_has_no_price_is_said_to_have_none() -> None:
    """It is not counted as free of charge."""
    world = world_with_runs()
    world.change_machines(vm_size="Standard_NC24ads_A100_v4")
    found = spending(WEEK, world.services)
    assert (None, 6.0) == rounded(found.cost, found.unpriced_node_hours)
    assert "unknown: no file has a price" in look(world, "/costs").text


def test_prices_yaml_says_what_clusters_yaml_does_not() -> None:
    """Plans, runs, weekly costs and the API state the same price with its currency."""
    world = world_with_runs()
    world.change_machines(vm_size="Standard_NC24ads_A100_v4")
    world.services = replace(world.services, plan_facts=facts())
    [run] = [each for each in world.ledger.runs() if each.ended_at is None]
    assert (22.02, 0.0) == rounded((found := spending(WEEK, world.services)).cost, found.unpriced_node_hours)
    assert "22.02 USD" in look(world, "/costs").text
    assert "22.02 USD (6.00 node-hours)" in look(world, f"/runs/{run.run_id}").text
    body = call(world, "GET", "/api/spending").json()
    assert (22.02, "USD") == (round(body["cost"], 3), body["currency"])


def test_a_run_that_waits_for_nodes_costs_nothing() -> None:
    """It was submitted, and no node has started."""
    world = World()
    world.upload_version()
    world.clock.move(days=1)
    found = spending(WEEK, world.services)
    assert ((), None) == (found.runs, found.cost)
    assert "No run had nodes in this time" in look(world, "/costs").text


def test_a_cost_of_nothing_is_nothing_and_not_unknown() -> None:
    """A run that waits for its first node, and one that ended as it began, cost 0 where the cluster has a price."""
    world = World()
    world.change_machines(vm_size="Standard_NC24ads_A100_v4", price_per_node_hour=3.5)
    run = world.upload_version()
    assert 0.0 == describe_run(run.run_id, world.services).cost
    assert "0.00 (0.00 node-hours)" in look(world, f"/runs/{run.run_id}").text
    assert [0.0] == [row.cost for row in compared([run], world.services).runs]
    at = world.clock()
    world.ledger.run_rows[run.run_id] = replace(run, started_at=at, ended_at=at)
    found = spending(WEEK, world.services)
    assert (0.0, [0.0], 0.0) == (found.cost, [row.cost for row in found.datasets], found.unpriced_node_hours)
    world.change_machines(vm_size="Standard_NC24ads_A100_v4")
    assert (None, [None]) == ((known := spending(WEEK, world.services)).cost, [row.cost for row in known.datasets])
    assert describe_run(run.run_id, world.services).cost is None


def test_runs_beyond_one_request_are_read_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """If there are too many, the answer says so."""
    monkeypatch.setattr("function_app.explain.spending.PER_REQUEST", 1)
    world = world_with_runs()
    assert 2 == len(spending(timedelta(days=30), world.services).runs)
    monkeypatch.setattr("function_app.explain.spending.MAX_READ", 1)
    found = spending(timedelta(days=30), world.services)
    assert (1, False) == (len(found.runs), found.is_whole)


def test_the_api_and_the_page_tell_the_same() -> None:
    """They agree for all datasets and for a single one."""
    world = world_with_runs()
    body: dict[str, Any] = call(world, "GET", "/api/spending?hours=168").json()
    assert (1, 6.0, 21.0) == rounded(body["num_runs"], body["node_hours"], body["cost"])
    assert [("digits", 21.0)] == [(row["dataset"], round(row["cost"], 3)) for row in body["datasets"]]
    page = look(world, "/costs?days=7").text
    assert all(text in page for text in ("21.00", "6.00", f"/runs/{body['runs'][0]['run_id']}"))
    assert 0 == call(world, "GET", "/api/spending?dataset=letters").json()["num_runs"]
    assert (422, "invalid_request") == error(call(world, "GET", "/api/spending?hours=0"))
    assert 422 == look(world, "/costs?days=0").status_code
