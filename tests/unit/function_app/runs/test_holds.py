"""Holds: what lifts one is said with it, and it works."""

from __future__ import annotations

from dataclasses import replace

import pytest

from function_app.domain.errors import VersionQuarantinedError
from function_app.domain.records import RunRecord
from function_app.domain.run_states import RunState
from function_app.explain.history import why
from function_app.runs.requests import request_run
from tests.support.world import TRAIN_SHARDS, VERSION, WEBHOOK, World
from tests.unit.function_app.notify.test_outbox import Refusing
from tests.unit.function_app.web.client import call, error

LIFTED = f"the hold ends when a shard is uploaded again, or with: landfall release {VERSION}"


def held() -> tuple[World, RunRecord]:
    """A version whose data made a run fail."""
    world = World()
    run = world.upload_version()
    world.jobs.become(run.run_id, "Failed", error="exited with status code 10.")
    world.follow(run)
    with pytest.raises(VersionQuarantinedError, match=f"{LIFTED}$"):
        request_run(VERSION, {}, trigger="http", services=world.services)
    return world, run


def trains_again(world: World) -> bool:
    """Whether the same request, without force, leads to a new run that is submitted."""
    run, is_new = request_run(VERSION, {}, trigger="http", services=world.services)
    world.serve_requests()
    return is_new and world.stands(run).state is RunState.SUBMITTED


def test_the_same_shard_uploaded_again_lifts_the_hold() -> None:
    """Its content may have been right, and the file as it was stored not."""
    world, _ = held()
    world.clock.move(minutes=1)
    world.upload_shards(TRAIN_SHARDS[0])
    assert trains_again(world)


def test_a_release_lifts_the_hold() -> None:
    """The history says that a person did it, and a second release that there is nothing left to lift."""
    world, run = held()
    first, second = (call(world, "POST", f"/api/datasets/{VERSION}/release").json() for _ in range(2))
    reason = f"run {run.run_id} failed on its data: exit code 10: the data differ from the manifest"
    assert {"dataset": "digits", "version": "v1", "released": True, "reason": reason} == first
    assert (False, None) == (second["released"], second["reason"])
    assert 1 == world.actions(VERSION).count("version_released")
    assert trains_again(world)


def test_a_hold_that_was_lifted_is_not_renewed_for_the_same_run() -> None:
    """The end of a run is looked at until its recipients are notified; another run may hold the data again."""
    world = World()
    run = world.upload_version()
    world.services = replace(world.services, notifiers={"topic": Refusing(refusals=9), WEBHOOK: world.people})
    world.jobs.become(run.run_id, "Failed", error="exited with status code 10.")
    world.follow(run)
    call(world, "POST", f"/api/datasets/{VERSION}/release")
    assert world.stands(run).notified_at is None
    world.follow(run)
    assert trains_again(world)
    again = world.ledger.runs()[0]
    world.jobs.become(again.run_id, "Failed", error="exited with status code 10.")
    world.follow(again)
    with pytest.raises(VersionQuarantinedError, match=again.run_id):
        request_run(VERSION, {}, trigger="http", services=world.services)


def test_what_lifts_a_hold_is_said_wherever_it_shows() -> None:
    """The notification, the history and the state of the version say so."""
    world, run = held()
    assert LIFTED[1:] in world.topic.received[0].content["text"]
    assert any(LIFTED in line for line in why(str(VERSION), world.services).awaited)
    assert run.run_id in call(world, "GET", f"/api/datasets/{VERSION}").json()["hold"]


def test_a_version_that_was_never_whole_cannot_be_on_hold() -> None:
    """A typing error in its name is not taken for a version without a hold."""
    assert (404, "not_found") == error(call(World(), "POST", "/api/datasets/digits/v9/release"))
