"""Plans over the API and on their page, dry runs, and predictions of runs."""

from __future__ import annotations

import re
from typing import Any

import pytest

from cli.remote.plan import describe_plan
from function_app.domain.capacity import Capacity, ClusterNow, OfferedFamily, Quota
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


NOUNS: tuple[tuple[str, str, str, str], ...] = (
    ("which generation", "generation", "generation 1", "generation 1"),
    ("why it is no duplicate", "reason", "a new run: no run has trained generation 1", "a new run: no run has"),
    ("validation", "validation", "train: 2 shards, 22 records accepted", "train: 2 shards, 22 records accepted"),
    ("rank plan", "own.num_ranks", "ranks: 2 on 2 nodes of landfall-gpu, 3 epochs of 11 steps", "3 of 11 steps of 2"),
    ("clusters", "clusters.1.name", "landfall-a100: Standard_ND96asr_v4", "Standard_ND96asr_v4"),
    ("life cycle", "clusters.1.life_cycle", "no nodes without a job, at most 4", "no nodes without a job, at most 4"),
    ("quota", "clusters.1.quota", "1 of 4 vCPUs in use", "1 of 4 vCPUs in use"),
    ("nodes now", "clusters.1.now", "now: 1 node of at most 4", "1 node of at most 4"),
    ("network", "clusters.1.network", "InfiniBand between nodes", "InfiniBand between nodes"),
    ("time and cost as table", "estimates.5.cost", "2 nodes    16 ranks  ", "<td>16</td>"),
    ("time and cost as chart", "estimates.5.total_s", "    landfall-a100    2  #", 'aria-label="Cost'),
    ("recommended size", "recommended.num_nodes", "recommended: 1 node of landfall-a100", "Recommended: 1 node of"),
    ("one node", "one_node", "one node with more GPUs is faster", "one node with more GPUs is faster"),
    (
        "cold start",
        "own.start_s",
        "node start and idle time at the end are included",
        "Node start and idle time",
    ),
    ("idle tail", "own.idle_s", "node start and idle time at the end are included", "Node start and idle time"),
    ("exact body", "body.properties.command", "`--json` shows its body", "training_job.train"),
    ("source of throughput", "throughput", "throughput: measured in 1 earlier run", "Throughput: measured in 1"),
    ("prediction and what happened", "outcomes.0.error", "predicted 2.0 min", "Earlier predictions"),
    (
        "what it teaches",
        "outcomes.0.is_wrong",
        "more than a third: later plans use only this run and newer ones",
        "more than a third: later plans use only this run and newer ones",
    ),
    ("dated prices", "as_of", "as of 2025-12-31", "as of 2025-12-31"),
)
"""What issue 17 asks of a plan: member of the API's answer, and what the command and the page say."""


@pytest.fixture(scope="module")
def stated() -> tuple[dict[str, Any], str, str]:
    """One plan as the API, the command and the page tell it."""
    world = planning_world()
    train_for(world, "v1", record_s=30.0)
    world.upload_shards(*ALL_SHARDS, version="v2")
    world.jobs.capacity_now = Capacity(
        clusters={"landfall-a100": ClusterNow(num_nodes=1, max_nodes=4)},
        families={"standard_nd96asr_v4": OfferedFamily(name="NDASv4", vcpus=1)},
        quotas=(Quota(name="NDASv4", used=1, limit=4),),
    )
    body: dict[str, Any] = call(world, "GET", PATH).json()
    return body, "\n".join(describe_plan(body)), look(world, "/datasets/digits/v2/plan").text


@pytest.mark.parametrize(("noun", "member", "line", "shown"), NOUNS, ids=[noun for noun, *_ in NOUNS])
def test_the_api_the_command_and_the_page_tell_it(
    stated: tuple[dict[str, Any], str, str], noun: str, member: str, line: str, shown: str
) -> None:
    """Each by itself, so that none can lose it."""
    body, printed, page = stated
    found: Any = body
    for part in member.split("."):
        found = found[int(part)] if part.isdigit() else found[part]
    assert found not in (None, "", [], {}), noun
    assert (True, True) == (line in printed, shown in re.sub(r'(?<=<td) class="[^"]*"', "", page)), noun


def test_large_rates_are_written_out() -> None:
    """Published figures lead to tens of thousands of small images a second."""
    world = planning_world()
    world.upload_shards(*ALL_SHARDS, version="v2")

    assert ">33,2" in look(world, "/datasets/digits/v2/plan").text
