"""Asking for a run: on a whole version, within limits, one run for one request."""

from __future__ import annotations

import pytest

from function_app.domain.errors import NotFoundError, OverrideError, VersionNotWholeError
from function_app.domain.records import DatasetVersion
from function_app.domain.run_states import RunState
from function_app.runs.requests import request_run
from tests.support.world import ALL_SHARDS, TRAIN_SHARDS, VERSION, World


def test_a_request_with_another_option_is_another_run() -> None:
    """It is claimed and queued; the queue submits it."""
    world = World()
    first = world.land_all()
    world.finish(first)
    run, is_new = request_run(VERSION, {"epochs": 5}, trigger="http", services=world.services)
    world.serve_requests()
    assert (True, RunState.PLANNED, "http") == (is_new, run.state, run.trigger)
    assert [first.run_id, run.run_id] == world.jobs.submissions
    assert "--epochs 5 " in world.jobs.submitted[run.run_id].command


def test_the_same_request_again_meets_its_run() -> None:
    """Also the run that the closing started."""
    world = World()
    first = world.land_all()
    run, is_new = request_run(VERSION, {}, trigger="http", services=world.services)
    assert (first.run_id, False, []) == (run.run_id, is_new, world.requests.messages)


def test_a_run_that_was_claimed_and_never_queued_is_queued() -> None:
    """Whoever asked first died in between."""
    world = World()
    world.land_all()
    request_run(VERSION, {"epochs": 5}, trigger="http", services=world.services)
    world.requests.messages.clear()
    _, is_new = request_run(VERSION, {"epochs": 5}, trigger="http", services=world.services)
    assert (False, 1) == (is_new, len(world.requests.messages))


def test_a_version_that_is_not_whole_says_what_is_missing() -> None:
    """Every shard by its name."""
    world = World()
    world.land(TRAIN_SHARDS[0])
    with pytest.raises(VersionNotWholeError, match="digits/v1 is not whole: 2 missing") as caught:
        request_run(VERSION, {}, trigger="http", services=world.services)
    assert ("train-00001-of-00002", "validation-*: no shard of this split has come yet") == caught.value.missing


def test_what_nobody_knows_is_not_found() -> None:
    """A dataset without a pipeline."""
    with pytest.raises(NotFoundError, match="dataset letters has no pipeline"):
        request_run(DatasetVersion(dataset="letters", version="v1"), {}, trigger="http", services=World().services)


def test_an_override_beyond_its_limit_claims_nothing() -> None:
    """It is refused before anything is written."""
    world = World()
    world.land(*ALL_SHARDS)
    with pytest.raises(OverrideError):
        request_run(VERSION, {"epochs": 1000}, trigger="http", services=world.services)
    assert [] == world.ledger.runs()
