"""The HTTP API registers a model against the gate: its answers, and its refusals."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.world import World, unregistered
from tests.unit.function_app.web.client import call, error


def test_a_model_is_registered_later_once_and_answered_alike() -> None:
    """201 with the place of the version, then 200; a dry run says what it would do and changes nothing."""
    world, run = unregistered()
    path, body = f"/api/runs/{run.run_id}/register", {"reason": "known labels"}
    dry = call(world, "POST", path, json={**body, "dryRun": True})
    assert (200, False, {}) == (dry.status_code, dry.json()["is_registered"], world.models.registered)
    assert any("a person overrode the gate" in step for step in dry.json()["steps"])
    made = call(world, "POST", path, json=body, headers={"Idempotency-Key": "k1"})
    again = call(world, "POST", path, json=body, headers={"Idempotency-Key": "k1"})
    other = call(world, "POST", path, json={"reason": "another"})
    place = f"/api/models/digits-cnn/versions/{made.json()['model_version']}"
    assert [(201, place), (201, place), (200, place)] == [
        (answer.status_code, answer.headers["Location"]) for answer in (made, again, other)
    ]
    assert ("a person over the API", "known labels") == (
        other.json()["override"]["by"],
        other.json()["override"]["why"],
    )
    assert 1 == len(world.models.registered)
    shown = call(world, "GET", place).json()
    assert "known labels" == shown["evidence"]["override"]["why"]
    assert (422, "idempotency_key_reused") == error(
        call(world, "POST", path, json={"reason": "x"}, headers={"Idempotency-Key": "k1"})
    )


@pytest.mark.parametrize("body", [{}, {"reason": ""}, {"reason": "  "}, {"reason": "x" * 1001}, {"reason": 1}])
def test_a_registration_without_a_reason_is_refused(body: dict[str, Any]) -> None:
    """The error names the member."""
    world, run = unregistered()
    answer = call(world, "POST", f"/api/runs/{run.run_id}/register", json=body)
    assert (422, "invalid_request") == error(answer)
    assert "reason" in answer.text


def test_a_run_that_cannot_be_registered_is_a_conflict_that_says_why() -> None:
    """The run has not ended, its files are gone, or it is unknown."""
    world = World()
    run = world.upload_version()
    path = f"/api/runs/{run.run_id}/register"
    answer = call(world, "POST", path, json={"reason": "x"})
    assert ((409, "not_registrable"), True) == (error(answer), "has not ended" in answer.json()["detail"])
    world.end_job(run, val_accuracy=0.5)
    world.follow(run)
    answer = call(world, "POST", path, json={"reason": "x"})
    assert ((409, "not_registrable"), True) == (error(answer), "are gone" in answer.json()["detail"])
    unknown = call(world, "POST", "/api/runs/landfall-x-a1/register", json={"reason": "x"})
    assert (404, "not_found") == error(unknown)
