"""Plans over the API and on their page, dry runs, and predictions of runs."""

from __future__ import annotations

import pytest

from tests.support.world import ALL_SHARDS, TRAIN_SHARDS, World
from tests.unit.function_app.planning.worlds import planning_world, train_for
from tests.unit.function_app.web.client import call, look

PATH = "/api/datasets/digits/v2/plan"


@pytest.fixture
def world() -> World:
    """One version was trained, another is complete and waits."""
    world = planning_world()
    train_for(world, "v1", record_s=30.0)
    world.upload_shards(*ALL_SHARDS, version="v2")
    return world


def test_a_dry_run_answers_with_the_plan_and_changes_nothing(world: World) -> None:
    before = (set(world.ledger.run_rows), dict(world.documents.documents), list(world.requests.messages))
    asked = {"dataset": "digits", "version": "v2", "dryRun": True}
    plain = call(world, "POST", "/api/runs", json=asked, headers={"Idempotency-Key": "one"})
    other = call(
        world, "POST", "/api/runs", json={**asked, "overrides": {"epochs": 30}}, headers={"Idempotency-Key": "one"}
    )

    assert (200, 200) == (plain.status_code, other.status_code)
    assert call(world, "GET", PATH).json() == plain.json()
    assert plain.json()["own"]["run_s"] < other.json()["own"]["run_s"]
    assert before == (set(world.ledger.run_rows), world.documents.documents, world.requests.messages)


def test_a_dry_run_refuses_what_no_plan_can_be_made_of(world: World) -> None:
    asked = {"dataset": "digits", "version": "v2", "dryRun": True, "overrides": {"epochs": 1000}}
    assert 422 == call(world, "POST", "/api/runs", json=asked).status_code
    world.upload_shards(TRAIN_SHARDS[0], version="v3")
    assert 409 == call(world, "GET", "/api/datasets/digits/v3/plan").status_code
    assert 404 == call(world, "GET", "/api/datasets/nothing/v3/plan").status_code


def test_a_run_states_its_prediction_and_what_happened(world: World) -> None:
    run = next(iter(world.ledger.run_rows))
    prediction = call(world, "GET", f"/api/runs/{run}").json()["prediction"]

    assert ("published", "2025-12-31", True) == (prediction["source"], prediction["as_of"], prediction["is_wrong"])
    assert prediction["measured_s"] == pytest.approx(60 + 66 * 30, abs=1)
    assert prediction["error"] == pytest.approx(prediction["measured_s"] / prediction["predicted_s"] - 1)
    assert prediction["measured_cost"] > prediction["predicted_cost"] > 0


def test_the_page_shows_table_chart_and_recommendation(world: World) -> None:
    shown = look(world, "/datasets/digits/v2/plan")

    assert 200 == shown.status_code
    for text in (
        "as of 2025-12-31",
        "Recommended",
        "landfall-a100",
        "<svg",
        "Request to Azure ML",
        "more than a third",
    ):
        assert text in shown.text
    assert 'href="/datasets/digits/v2/plan"' in look(world, "/datasets/digits/v2").text
    run = next(iter(world.ledger.run_rows))
    assert "Predicted" in look(world, f"/runs/{run}").text


def test_large_rates_are_written_out() -> None:
    """Published figures lead to tens of thousands of small images a second."""
    world = planning_world()
    world.upload_shards(*ALL_SHARDS, version="v2")

    assert ">33,2" in look(world, "/datasets/digits/v2/plan").text
