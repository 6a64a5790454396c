"""Option sweeps over HTTP: requested, shown and canceled."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.world import World
from tests.unit.function_app.web.client import call, error

BODY = {"dataset": "digits", "version": "v1", "grid": {"learning_rate": [0.1, 0.01]}, "max_node_hours": 2}


def trained_world() -> World:
    """Return a world whose version was trained on."""
    world = World()
    world.finish(world.upload_version())
    return world


def ended_sweep() -> tuple[World, dict[str, Any]]:
    """Return a world with a sweep of two runs that have ended, and the answer to its request."""
    world = trained_world()
    sweep = call(world, "POST", "/api/sweeps", json=BODY).json()
    for accuracy in (0.96, 0.98):
        world.serve_requests()
        run = world.ledger.runs()[0]
        world.end_job(run, val_accuracy=accuracy)
        world.follow(run)
    return world, sweep


def test_a_sweep_is_requested_once_and_shown_as_it_stands() -> None:
    """202, then 200 with the same location; runs that are not started have no state."""
    world = trained_world()
    answers = [call(world, "POST", "/api/sweeps", json=BODY) for _ in range(2)]
    sweep = answers[0].json()
    assert [202, 200] == [answer.status_code for answer in answers]
    assert [f"/api/sweeps/{sweep['sweep_id']}"] * 2 == [answer.headers["Location"] for answer in answers]
    assert ("running", 1, 2.0, "val_accuracy", True) == (
        sweep["state"],
        sweep["num_nodes"],
        sweep["node_hours"],
        sweep["metric"],
        sweep["higher_is_better"],
    )
    assert [("planned", {"learning_rate": 0.1}), (None, {"learning_rate": 0.01})] == [
        (run["state"], run["options"]) for run in sweep["runs"]
    ]


def test_a_sweep_that_has_ended_says_which_run_is_the_best() -> None:
    """Each run with its metrics, and the best one by its id."""
    world, sweep = ended_sweep()
    ended = call(world, "GET", f"/api/sweeps/{sweep['sweep_id']}").json()
    best = ended["runs"][1]
    assert ("ended", best["run_id"], {"val_accuracy": 0.98}) == (ended["state"], ended["best"], best["metrics"])
    shown = call(world, "GET", f"/api/runs/{ended['best']}").json()
    assert (sweep["sweep_id"], 2) == (shown["sweep_id"], shown["sweep_number"])
    history = call(world, "GET", f"/api/why/{sweep['sweep_id']}").json()
    assert {"run_planned", "sweep_decided", "notification_sent"} == {line["action"] for line in history["lines"]}
    assert (409, "run_has_ended") == error(call(world, "POST", f"/api/sweeps/{sweep['sweep_id']}/cancel"))


def test_a_canceled_sweep_says_why() -> None:
    """A repeated cancellation has the same answer."""
    world = trained_world()
    sweep = call(world, "POST", "/api/sweeps", json=BODY).json()
    answers = [call(world, "POST", f"/api/sweeps/{sweep['sweep_id']}/cancel").json() for _ in range(2)]
    assert ["canceled"] * 2 == [answer["state"] for answer in answers]
    assert "canceled by a person over the API" == answers[0]["reason"]
    assert "canceled" == answers[0]["runs"][0]["state"]


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"max_node_hours": 1}, 422, "option_sweep_refused"),
        ({"grid": {}}, 422, "option_sweep_refused"),
        ({"runs": [{"epochs": 1}]}, 422, "option_sweep_refused"),
        ({"grid": {"learning_rat": [0.1, 0.01]}}, 422, "override_not_allowed"),
        ({"grid": {"epochs": list(range(1, 30)), "learning_rate": [0.1, 0.01]}}, 422, "option_sweep_refused"),
        ({"version": "v9"}, 409, "version_not_whole"),
        ({"max_node_hours": -1}, 422, "invalid_request"),
        ({"dataset": "letters"}, 404, "not_found"),
    ],
)
def test_a_sweep_that_cannot_be_is_refused(change: dict[str, Any], status: int, code: str) -> None:
    """Nothing is planned."""
    world = trained_world()
    assert (status, code) == error(call(world, "POST", "/api/sweeps", json={**BODY, **change}))
    assert 1 == len(world.ledger.runs())


def test_an_option_that_is_not_offered_is_shown_in_the_grid() -> None:
    """The error points at it in the body."""
    body = {**BODY, "grid": {"learning_rat": [0.1, 0.01]}}
    (part,) = call(trained_world(), "POST", "/api/sweeps", json=body).json()["errors"]
    assert ("#/grid/learning_rat", True) == (part["pointer"], "did you mean learning_rate?" in part["detail"])


def test_a_key_of_another_request_is_refused() -> None:
    """Runs behave in the same way."""
    world, headers = trained_world(), {"Idempotency-Key": "one"}
    call(world, "POST", "/api/sweeps", json=BODY, headers=headers)
    answer = call(world, "POST", "/api/sweeps", json={**BODY, "max_node_hours": 3}, headers=headers)
    assert (422, "idempotency_key_reused") == error(answer)


def test_an_unknown_sweep_is_not_found() -> None:
    """Its page of the API too."""
    for method, path in (("GET", "/api/sweeps/sweep-x"), ("POST", "/api/sweeps/sweep-x/cancel")):
        assert (404, "not_found") == error(call(World(), method, path))


def test_runs_are_shown_side_by_side() -> None:
    """They are selected by their ids or by their sweep; options that differ, metrics, time and cost are shown."""
    world, sweep = ended_sweep()
    run_ids = [run["run_id"] for run in sweep["runs"]]
    by_runs = call(world, "GET", "/api/compare", params={"run": run_ids}).json()
    assert by_runs == call(world, "GET", "/api/compare", params={"run": sweep["sweep_id"]}).json()
    assert (["learning_rate"], ["val_accuracy"]) == (by_runs["options"], by_runs["metrics"])
    assert [("0.1", 0.96, "not_registered"), ("0.01", 0.98, "registered")] == [
        (run["options"]["learning_rate"], run["metrics"]["val_accuracy"], run["state"]) for run in by_runs["runs"]
    ]


@pytest.mark.parametrize(
    ("run_ids", "status"),
    [([], 422), (["landfall-x-a1"], 404), (["sweep-x"], 404), (["../x"], 422), (["x"] * 33, 422)],
)
def test_what_cannot_be_compared_is_refused(run_ids: list[str], status: int) -> None:
    """Nothing, unknown runs, no ids, and too many."""
    assert status == error(call(trained_world(), "GET", "/api/compare", params={"run": run_ids}))[0]
