"""`landfall plan` and `landfall submit --dry-run`: what they ask, and what they print of the engine's own answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.terminal import landfall
from tests.support.world import ALL_SHARDS, World
from tests.unit.cli.fake_function_app import served, serving
from tests.unit.function_app.planning.worlds import planning_world, train_for
from tests.unit.function_app.web.client import call

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def answer() -> dict[str, Any]:
    """The app's answer for a version after one run of another."""
    world = planning_world()
    train_for(world, "v1", record_s=30.0)
    world.upload_shards(*ALL_SHARDS, version="v2")
    found: dict[str, Any] = call(world, "GET", "/api/datasets/digits/v2/plan").json()
    return found


def printed(capsys: Capture, answer: dict[str, Any], *words: str) -> tuple[str, list[Any]]:
    seen: list[tuple[str, Any]] = []
    with served(answer, seen, status=200) as url:
        status, out, err = landfall(capsys, *words, "--url", url, "--key", "k")
    assert (0, "") == (status, err)
    return out, seen


def test_a_plan_is_printed_with_sizes_recommendation_and_date(capsys: Capture, answer: dict[str, Any]) -> None:
    out, seen = printed(capsys, answer, "plan", "digits/v2")

    assert [("/api/datasets/digits/v2/plan", None)] == seen
    for text in (
        "digits/v2, pipeline digits: a new run",
        "2 on 2 nodes of landfall-gpu, 3 epochs of 11 steps of 2 records",
        "measured in 1 earlier run",
        "as of 2025-12-31",
        "landfall-a100: Standard_ND96asr_v4, 27.20 USD a node and hour",
        "quota: unknown",
        "1 node     8 ranks",
        "recommended: 1 node of landfall-a100, ",
        "one node with more GPUs is faster",
        "more than a third: later plans use only this run and newer ones",
    ):
        assert text in out


def test_json_is_the_whole_answer(capsys: Capture, answer: dict[str, Any]) -> None:
    out, _ = printed(capsys, answer, "plan", "digits/v2", "--json")

    assert answer == json.loads(out)
    assert answer["body"]["properties"]["jobType"] == "Command"


def test_synthetic_data_are_named_alone(capsys: Capture, answer: dict[str, Any]) -> None:
    _, seen = printed(capsys, answer, "plan", "noise")

    assert [("/api/runs", {"dataset": "noise", "overrides": {}, "dryRun": True})] == seen


def test_a_dataset_that_has_versions_is_not_planned_without_one(capsys: Capture) -> None:
    with serving(World()) as url:
        status, _, err = landfall(capsys, "plan", "digits", "--url", url)

    assert (1, True) == (status, "which version of digits?" in err)


def test_a_dry_run_sends_the_request_and_prints_its_plan(capsys: Capture, answer: dict[str, Any]) -> None:
    out, seen = printed(capsys, answer, "submit", "digits/v2", "--set", "epochs=5", "--force", "--dry-run")

    body = {"dataset": "digits", "version": "v2", "overrides": {"epochs": 5}, "force": True, "dryRun": True}
    assert [("/api/runs", body)] == seen
    assert "recommended: 1 node of landfall-a100, " in out


def test_a_dry_run_of_a_sweep_is_refused(capsys: Capture) -> None:
    words = [
        "--sweep",
        "epochs=1,2",
        "--max-node-hours",
        "9",
        "--dry-run",
        "--url",
        "http://127.0.0.1:9",
        "--key",
        "k",
    ]
    status, _, err = landfall(capsys, "submit", "digits/v2", *words)

    assert status == 2
    assert "--dry-run is for one run" in err
