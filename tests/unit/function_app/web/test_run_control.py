"""Canceling and forcing over HTTP: statuses, headers, and what may be repeated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from function_app.runs.following import reconcile_run
from function_app.testing.azure_ml import MemoryJobs
from tests.support.world import World, pipeline
from tests.unit.function_app.web.test_app import call


class Stubborn(MemoryJobs):
    """Jobs that take their time to end."""

    def cancel(self, name: str) -> None:
        """Take note."""
        self.become(name, "CancelRequested")


def test_a_run_that_ends_at_once_is_answered_with_200_and_again_the_same() -> None:
    """The answer is the run; repeating changes nothing."""
    world = World()
    run = world.land_all()
    answers = [call(world, "POST", f"/api/runs/{run.run_id}/cancel") for _ in range(2)]
    assert [(200, "canceled")] * 2 == [(answer.status_code, answer.json()["state"]) for answer in answers]
    assert 1 == len(world.topic.received)


def test_a_job_that_takes_its_time_is_answered_with_202() -> None:
    """The wish is on record, and shown."""
    world = World(jobs=Stubborn())
    run = world.land_all()
    answer = call(world, "POST", f"/api/runs/{run.run_id}/cancel")
    assert (202, "submitted", True) == (
        answer.status_code,
        answer.json()["state"],
        answer.json()["cancel_requested_at"] is not None,
    )


@pytest.mark.parametrize(
    ("run_id", "status", "code"), [("landfall-x-a1", 404, "not_found"), (None, 409, "run_has_ended")]
)
def test_what_cannot_be_canceled_is_an_error(run_id: str | None, status: int, code: str) -> None:
    """Unknown, or ended otherwise."""
    world = World()
    run = world.finish(world.land_all())
    answer = call(world, "POST", f"/api/runs/{run_id or run.run_id}/cancel")
    assert (status, code) == (answer.status_code, answer.json()["error"]["code"])


def forced(world: World, **request: Any) -> tuple[int, str]:
    """Status and run of a forced call."""
    body = {"dataset": "digits", "version": "v1", "force": True}
    answer = call(world, "POST", "/api/runs", json=body, **request)
    return answer.status_code, answer.json().get("run_id", "")


def test_a_forced_call_under_the_same_key_is_the_same_run() -> None:
    """202, then 200 for the same; without a key each is a run of its own."""
    world = World()
    world.finish(world.land_all())
    keyed = [forced(world, headers={"Idempotency-Key": "abc"}) for _ in range(2)]
    bare = [forced(world) for _ in range(2)]
    assert [202, 200, 202, 202] == [status for status, _ in (*keyed, *bare)]
    assert 3 == len({run_id for _, run_id in (*keyed, *bare)})


def test_a_key_is_bounded() -> None:
    """It ends up in names and stories."""
    world = World()
    world.land_all()
    assert [422, 422] == [forced(world, headers={"Idempotency-Key": key})[0] for key in ("x" * 129, "a b")]


def test_a_version_lists_the_generations_that_are_superseded() -> None:
    """The latest closing is the version; those before it are kept for the record."""
    world = World()
    world.land_all()
    world.change_shard(5)
    world.change_shard(6)
    answer = call(world, "GET", "/api/datasets/digits/v1").json()
    assert (3, [2, 1]) == (answer["generation"]["number"], [each["number"] for each in answer["superseded"]])


def test_quarantined_data_are_refused_with_409() -> None:
    """The message names the run that failed over them."""
    world = World()
    run = world.land_all()
    world.jobs.become(run.run_id, "Failed", error="exited with status code 10.")
    reconcile_run(run.run_id, world.services)
    body = {"dataset": "digits", "version": "v1", "overrides": {"epochs": 5}}
    answer = call(world, "POST", "/api/runs", json=body)
    assert (409, "version_quarantined", True) == (
        answer.status_code,
        answer.json()["error"]["code"],
        run.run_id in answer.json()["error"]["message"],
    )


def test_a_bad_script_is_answered_with_its_findings() -> None:
    """Status, code, and one detail for each."""
    world = World()
    world.finish(world.land_all())
    world.change_pipeline(train=pipeline().train.model_copy(update={"script": "scripts/mine.py"}))
    script = b"import horovod.tensorflow as hvd\nprint(hvd.rank())\n"
    world.services = replace(world.services, read_script=lambda _: script)
    answer = call(world, "POST", "/api/runs", json={"dataset": "digits", "version": "v1"})
    error = answer.json()["error"]
    details = ["scripts/mine.py:2: missing_init: rank is called, but hvd.init() never"]
    assert (422, "script_refused", details) == (answer.status_code, error["code"], error["details"])
