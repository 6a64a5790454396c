"""The HTTP API: what it answers, and the one shape of its errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from function_app.domain.errors import ServiceUnavailableError, SettingsError
from function_app.runs.following import reconcile_run
from function_app.services import Services
from function_app.web.app import build_web_app
from function_app.web.guard import MAX_BODY_BYTES
from tests.support.synthetic import SYNTHETIC, synthetic_world
from tests.support.world import TRAIN_SHARDS, World, shard_content


def ask(services: Callable[[], Services], method: str, path: str, **request: Any) -> httpx.Response:
    """One request to the web app, as the Functions worker passes it on."""
    import asyncio

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app=build_web_app(services))
        async with httpx.AsyncClient(transport=transport, base_url="http://landfall") as client:
            return await client.request(method, path, **request)

    return asyncio.run(send())


def call(world: World, method: str, path: str, **request: Any) -> httpx.Response:
    """One request to a world's API."""
    return ask(lambda: world.services, method, path, **request)


def error(answer: httpx.Response) -> tuple[int, str]:
    """Status and code of an error, whose body must have the one shape."""
    members = answer.json()["error"]
    assert {"code", "message", "details"} == set(members)
    assert members["message"]
    return answer.status_code, members["code"]


def test_an_open_version_says_which_shards_are_missing_and_why_others_were_rejected() -> None:
    """What its owner has to do next."""
    world = World()
    world.land(TRAIN_SHARDS[0])
    world.deliver(world.put(TRAIN_SHARDS[1], b"<html>"))
    body = call(world, "GET", "/api/datasets/digits/v1").json()
    train = body["splits"]["train"]
    assert ("open", 2, 1, ["train-00001-of-00002"]) == (
        body["state"],
        train["num_shards"],
        train["accepted"],
        train["missing"],
    )
    (rejected,) = train["rejected"]
    assert (TRAIN_SHARDS[1], "not_a_shard", 0) == (
        rejected["shard"],
        rejected["reasons"][0]["code"],
        rejected["reasons"][0]["byte_offset"],
    )
    assert ["validation-*: no shard of this split has come yet"] == body["splits"]["validation"]["missing"]


def test_a_split_says_what_its_accepted_shards_hold() -> None:
    """Records, bytes and labels; a rejected shard counts for none of them, and its reasons are complete."""
    world = World()
    contents = {TRAIN_SHARDS[0]: shard_content(1, 1, 7), TRAIN_SHARDS[1]: shard_content(2, 99)}
    for name, content in contents.items():
        world.deliver(world.put(name, content))
    train = call(world, "GET", "/api/datasets/digits/v1").json()["splits"]["train"]
    statistics = {
        "num_records": 3,
        "num_bytes": len(contents[TRAIN_SHARDS[0]]) - 3 * 16,
        "size_bytes": len(contents[TRAIN_SHARDS[0]]),
        "label_feature": "label",
        "labels": {"1": 2, "7": 1},
        "other_labels": 0,
        "features": {
            "label": {
                "kind": "int64",
                "num_present": 3,
                "minimum": 1.0,
                "maximum": 7.0,
                "num_distinct": 2,
                "most_frequent": {"1": 2, "7": 1},
                "other": 0,
            }
        },
    }
    assert (statistics, 1) == (train["statistics"], train["num_rejected"])
    reason = {"code", "message", "record_index", "byte_offset", "feature", "expected", "seen"}
    (seen,) = train["rejected"][0]["reasons"]
    assert (reason, 1, len(shard_content(2)), "label", "99") == (
        set(seen),
        seen["record_index"],
        seen["byte_offset"],
        seen["feature"],
        seen["seen"],
    )


def test_a_closed_version_has_its_generation_and_runs() -> None:
    """And nothing is missing."""
    world = World()
    run = world.land_all()
    body = call(world, "GET", "/api/datasets/digits/v1").json()
    assert ("closed", 1, 3, run.run_id) == (
        body["state"],
        body["generation"]["number"],
        body["generation"]["num_shards"],
        body["runs"][0]["run_id"],
    )


def test_a_run_says_how_it_ended_and_who_was_told() -> None:
    """Model, metrics, and one line for each recipient."""
    world = World()
    run = world.land_all()
    world.end_job(run)
    reconcile_run(run.run_id, world.services)
    body = call(world, "GET", f"/api/runs/{run.run_id}").json()
    assert ("registered", "digits-cnn", {"val_accuracy": 0.97}) == (
        body["state"],
        body["model_name"],
        body["metrics"],
    )
    assert [("topic", "sent"), ("webhook:LANDFALL_WEBHOOK_PEOPLE", "sent")] == [
        (one["recipient"], one["state"]) for one in body["notifications"]
    ]


def test_runs_are_listed_newest_first_and_bounded() -> None:
    """All datasets, or one."""
    world = World()
    first = world.land_all()
    call(world, "POST", "/api/runs", json={"dataset": "digits", "version": "v1", "overrides": {"epochs": 5}})
    newest = [run["run_id"] for run in call(world, "GET", "/api/runs").json()["runs"]]
    assert (2, first.run_id) == (len(newest), newest[1])
    assert [newest[0]] == [run["run_id"] for run in call(world, "GET", "/api/runs?limit=1").json()["runs"]]
    assert [] == call(world, "GET", "/api/runs?dataset=letters").json()["runs"]


def test_asking_for_a_run_is_accepted_once_and_then_met() -> None:
    """202 for a new run, 200 where the same was asked for before; both say where it is."""
    world = World()
    world.finish(world.land_all())
    body = {"dataset": "digits", "version": "v1", "overrides": {"epochs": 5}}
    answers = [call(world, "POST", "/api/runs", json=body) for _ in range(2)]
    run_id = answers[0].json()["run_id"]
    assert [202, 200] == [answer.status_code for answer in answers]
    assert [f"/api/runs/{run_id}"] * 2 == [answer.headers["Location"] for answer in answers]
    world.serve_requests()
    assert "submitted" == call(world, "GET", f"/api/runs/{run_id}").json()["state"]


def test_a_run_on_synthetic_data_needs_no_version_and_one_on_data_does() -> None:
    """The lineage of the former says synthetic; the latter is refused."""
    body = call(synthetic_world(), "POST", "/api/runs", json={"dataset": SYNTHETIC}).json()
    assert (SYNTHETIC, "synthetic", 1) == (body["dataset"], body["version"], body["generation"])
    assert (422, "version_name") == error(call(World(), "POST", "/api/runs", json={"dataset": "digits"}))


def test_a_run_on_a_version_that_is_not_whole_is_a_conflict_naming_the_missing() -> None:
    """The caller can upload them, and ask again."""
    world = World()
    world.land(TRAIN_SHARDS[0])
    answer = call(world, "POST", "/api/runs", json={"dataset": "digits", "version": "v1"})
    assert (409, "version_not_whole") == error(answer)
    assert "train-00001-of-00002" == answer.json()["error"]["details"][0]


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("GET", "/api/datasets/letters/v1", None, (404, "not_found")),
        ("GET", "/api/datasets/digits/v9", None, (404, "not_found")),
        ("GET", f"/api/datasets/digits/{'v' * 65}", None, (422, "invalid_request")),
        ("GET", "/api/runs/landfall-nobody-a1", None, (404, "not_found")),
        ("GET", "/api/runs/a%20b", None, (422, "invalid_request")),
        ("GET", "/api/runs?limit=0", None, (422, "invalid_request")),
        ("GET", "/api/runs?limit=1001", None, (422, "invalid_request")),
        ("GET", "/nowhere", None, (404, "not_found")),
        ("DELETE", "/api/runs", None, (405, "method_not_allowed")),
        ("POST", "/api/runs", {}, (422, "invalid_request")),
        ("POST", "/api/runs", {"dataset": "digits", "version": "v1", "script": "x"}, (422, "invalid_request")),
        ("POST", "/api/runs", {"dataset": "letters", "version": "v1"}, (404, "not_found")),
        (
            "POST",
            "/api/runs",
            {"dataset": "digits", "version": "v1", "overrides": {"num_nodes": 9}},
            (422, "override_not_allowed"),
        ),
        (
            "POST",
            "/api/runs",
            {"dataset": "digits", "version": "v1", "overrides": {"epochs": []}},
            (422, "invalid_request"),
        ),
    ],
)
def test_every_error_has_the_one_shape(method: str, path: str, body: Any, expected: tuple[int, str]) -> None:
    """A stable code for programs, a sentence for people."""
    assert expected == error(call(World(), method, path, json=body))


def test_a_body_that_is_no_json_is_refused() -> None:
    """In the same shape."""
    assert (422, "invalid_request") == error(call(World(), "POST", "/api/runs", content=b"{"))


def test_a_body_beyond_the_bound_is_refused() -> None:
    """No request of this API needs as much."""
    answer = call(World(), "POST", "/api/runs", content=b"x" * (MAX_BODY_BYTES + 1))
    assert (413, "body_too_large") == error(answer)


def _raising(problem: Exception) -> Callable[[], Services]:
    def services() -> Services:
        raise problem

    return services


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (SettingsError("LANDFALL_WORKSPACE is not set"), (503, "misconfigured")),
        (ServiceUnavailableError("storage did not answer"), (503, "service_unavailable")),
        (ZeroDivisionError("secret detail"), (500, "internal")),
    ],
)
def test_no_stack_trace_leaves(problem: Exception, expected: tuple[int, str]) -> None:
    """The log has it; the caller gets the shape."""
    answer = ask(_raising(problem), "GET", "/api/runs")
    assert expected == error(answer)
    assert "secret" not in answer.text
    assert "LANDFALL_WORKSPACE" not in answer.text


def test_the_api_describes_itself() -> None:
    """Every route, with its errors."""
    document = call(World(), "GET", "/api/openapi.json").json()
    routes = {(path, method) for path, methods in document["paths"].items() for method in methods}
    assert {
        ("/api/datasets/{dataset}/{version}", "get"),
        ("/api/runs", "get"),
        ("/api/runs", "post"),
        ("/api/runs/{run_id}", "get"),
        ("/api/runs/{run_id}/cancel", "post"),
        ("/api/why/{subject}", "get"),
        ("/api/reconcile", "post"),
        ("/api/dead-letters", "get"),
        ("/api/dead-letters/{dead_letter_id}", "get"),
        ("/api/dead-letters/{dead_letter_id}/replay", "post"),
    } == routes
    assert {"4XX", "5XX"} <= set(document["paths"]["/api/runs"]["get"]["responses"])
