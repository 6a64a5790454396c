"""Runs side by side: what differs, what they reached, and what they took."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from function_app.domain.errors import NotFoundError, OptionSweepError
from function_app.runs.comparison import finite
from function_app.runs.option_sweeps import compare
from function_app.runs.requests import request_run
from tests.support.world import VERSION, World, read_pipeline
from tests.unit.function_app.runs.test_option_sweeps import SCRIPT, finish, swept_world


def two_runs(**overrides: float) -> tuple[World, list[str]]:
    """A world with a run that has completed after 30 minutes, and a second one with other options that runs."""
    world = World()
    first = world.upload_version()
    world.jobs.become(first.run_id, "Running")
    world.follow(first)
    world.clock.move(minutes=30)
    world.finish(first)
    second, _ = request_run(VERSION, overrides, trigger="http", services=world.services)
    world.serve_requests()
    return world, [first.run_id, second.run_id]


def test_only_options_that_differ_are_named() -> None:
    """The values are those of the jobs, and the pipeline's own value is included."""
    world, run_ids = two_runs(epochs=5)
    comparison = compare(run_ids, world.services)
    assert ("epochs",) == comparison.options
    assert [{"epochs": "3"}, {"epochs": "5"}] == [dict(row.options) for row in comparison.runs]


def test_metrics_time_and_cost_are_those_of_the_run() -> None:
    """A run that has not started has none."""
    world, run_ids = two_runs(epochs=5)
    first, second = compare(run_ids, world.services).runs
    assert ({"val_accuracy": 0.97}, 100.0) == (first.metrics, first.images_per_s)
    assert (1800, 1.0) == (round(first.trained_s), round(first.node_hours, 3))  # on two nodes
    assert ({}, 0.0, None) == (second.metrics, second.node_hours, second.cost)


def test_machines_and_data_that_differ_are_named() -> None:
    """A request after a deployment and another version."""
    world = World()
    first = world.upload_version()
    world.finish(first)
    pipeline = world.services.pipelines["digits"]
    world.change_pipeline(train=pipeline.train.model_copy(update={"timeout_s": 600, "num_nodes": 1}))
    second = world.train(version="v2")
    comparison = compare([first.run_id, second.run_id], world.services)
    assert {"data", "timeout_s", "nodes", "processes"} == set(comparison.options)


def test_an_attempt_is_compared_as_its_run() -> None:
    """The time covers both attempts."""
    world = World()
    first = world.upload_version()
    world.jobs.become(first.run_id, "Running")
    world.follow(first)
    world.clock.move(minutes=30)
    world.jobs.become(first.run_id, "Failed", error="The job was preempted")
    world.follow(first)
    (row,) = compare([first.run_id], world.services).runs
    assert (2, 1.0) == (row.run.attempt, round(row.node_hours, 3))


def test_the_arguments_of_a_script_are_compared_and_its_paths_are_not() -> None:
    """This holds with or without an equals sign."""
    world = World()
    on = world.services.pipelines["digits"].train.model_copy(update={"num_nodes": 1})
    first = world.upload_version()
    script = read_pipeline(SCRIPT).train.model_copy(update={"num_nodes": on.num_nodes})
    world.change_pipeline(train=script)
    second = world.train(version="v2")
    options = dict(compare([first.run_id, second.run_id], world.services).runs[1].options)
    assert ("0.1", "16", "true") == (options["lr"], options["batch"], options["fast"])
    assert not {"manifest", "report", "output", "expected_nodes"} & set(options)


def test_runs_that_do_not_exist_or_are_too_many_are_refused() -> None:
    """The message has their names or their number."""
    world, run_ids = two_runs(epochs=5)
    with pytest.raises(NotFoundError, match="run landfall-x-a1 does not exist"):
        compare([*run_ids, "landfall-x-a1"], world.services)
    for number in range(40):
        copy = replace(world.ledger.run_rows[run_ids[0]], run_id=f"landfall-{number}-a1")
        world.ledger.add_run(copy)
    with pytest.raises(OptionSweepError, match="at most 32 runs can be compared at once"):
        compare([f"landfall-{number}-a1" for number in range(40)], world.services)


def test_a_sweep_stands_for_its_runs() -> None:
    """Those that are on record, each once."""
    world, sweep = swept_world()
    first, second = finish(world, sweep, 0.96)
    comparison = compare([sweep.sweep_id, first.run_id], world.services)
    assert [first.run_id, second.run_id] == [row.run.run_id for row in comparison.runs]
    assert (("learning_rate",), {"val_accuracy": 0.96}) == (comparison.options, comparison.runs[0].metrics)


def test_what_a_script_reports_is_shown_where_it_is_a_finite_number() -> None:
    """Anything may stand in a report."""
    assert {"a": 1.0} == finite({"a": 1, "b": math.nan, "c": math.inf, "d": True, "e": "x", "f": 10**400})
