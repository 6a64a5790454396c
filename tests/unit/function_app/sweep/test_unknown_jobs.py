"""Jobs of ours that the ledger does not know."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from function_app.domain.jobs import JobStatus
from function_app.domain.records import RunRecord
from function_app.domain.run_states import RunState
from function_app.runs.requests import request_run
from function_app.sweep.sweep import run_sweep
from function_app.sweep.unknown_jobs import care_for_unknown_jobs
from tests.support.world import ALL_SHARDS, VERSION, World


def swept(world: World) -> int:
    """Sweep; return how many unknown jobs were found."""
    world.clock.move(minutes=5)
    report = run_sweep(world.services)
    assert () == report.problems
    return report.unknown_jobs


def forgotten(status: str = "Running", **tags: str) -> tuple[World, RunRecord]:
    """A world whose run is not on record any more, while its job goes on."""
    world = World()
    run = world.upload_version()
    world.ledger.run_rows.clear()
    job = world.jobs.statuses[run.run_id]
    world.jobs.statuses[run.run_id] = replace(job, status=status, tags={**job.tags, **tags})
    return world, run


def adopt(world: World) -> None:
    """Adopt the job before the closing asks for its run again."""
    care_for_unknown_jobs(world.services)
    assert {"adopted"} == {run.trigger for run in world.ledger.runs()}


def stranger(world: World, **members: Any) -> JobStatus:
    """Put a job into the workspace that no deployment here has planned."""
    tags = {"landfall.run_id": "x", "landfall.dataset_version": "digits/v1", "landfall.fingerprint": "f" * 64}
    defaults: dict[str, Any] = {"name": "landfall-digits-v1-0123456789ab-a1", "status": "Running", "tags": tags}
    job = JobStatus(**(defaults | members))
    world.jobs.statuses[job.name] = job
    return job


def test_known_jobs_are_left_alone() -> None:
    """The usual sweep."""
    world = World()
    world.upload_version()
    assert 0 == swept(world)


def test_a_job_whose_plan_gives_its_very_spec_is_adopted() -> None:
    """It is followed to its end as if its row had never been lost."""
    world, run = forgotten()
    world.ledger.generation_rows = {
        key: replace(row, auto_run_id="landfall-digits-v1-other-a1")
        for key, row in world.ledger.generation_rows.items()
    }
    found = swept(world)
    adopted = world.ledger.run_rows[run.run_id]
    assert (1, run.spec, "adopted") == (found, adopted.spec, adopted.trigger)
    assert "run_adopted" in world.actions(run.run_id)


def test_a_job_of_another_spec_is_notified_once() -> None:
    """Half a record would register a model without its lineage."""
    world, run = forgotten(**{"landfall.spec_hash": "0" * 64, "landfall.fingerprint": "0" * 64})
    world.jobs.statuses["landfall-copied-a1"] = replace(world.jobs.statuses[run.run_id], name="landfall-copied-a1")
    for _ in range(3):
        swept(world)
    jobs = [n.content["job"] for n in world.people.received if n.outcome == "unknown_job"]
    assert ("landfall-copied-a1", 1) == (jobs[-1], jobs.count("landfall-copied-a1"))


def test_a_job_that_has_ended_is_only_put_into_the_history() -> None:
    """It requires no action."""
    world = World()
    job = stranger(world, status="Completed")
    for _ in range(2):
        swept(world)
    assert (["unknown_job"], []) == (world.actions(job.name), world.people.received)


def test_jobs_of_other_deployments_and_other_projects_are_ignored() -> None:
    """They may share the workspace."""
    world = World()
    stranger(world, name="calm_river_x1b2")
    stranger(world, name="landfall-cats-v1-0123456789ab-a1", tags={
        "landfall.run_id": "x", "landfall.dataset_version": "cats/v1",
    })  # fmt: skip
    swept(world)
    assert ([], []) == (world.people.received, world.actions("landfall-cats-v1-0123456789ab-a1"))


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_adopted_job_whose_shards_were_written_again_leads_to_no_model(moment: str) -> None:
    """What it read before its adoption is not known; the same version can be requested again."""
    world, run = forgotten("Running")
    name = ALL_SHARDS[0]
    content = world.shards.blobs[f"digits/v1/{name}"][1]
    if moment == "after":
        adopt(world)
    world.deliver(world.put(name, content))
    if moment == "before":
        adopt(world)
    world.end_job(run)
    swept(world)
    ended = world.ledger.run_rows[run.run_id]
    _, is_new = request_run(VERSION, {}, trigger="http", services=world.services)
    assert (RunState.NOT_REGISTERED, "data_changed", {}, True) == (
        ended.state,
        ended.failure_class,
        world.models.registered,
        is_new,
    )


def test_an_adopted_job_that_has_ended_is_settled() -> None:
    """The next look finds its end."""
    world, run = forgotten("Running")
    swept(world)
    world.end_job(run)
    swept(world)
    assert RunState.REGISTERED == world.ledger.run_rows[run.run_id].state
