"""Code of another release: its jobs are refused before they cost anything, with both versions and the command."""

from __future__ import annotations

from dataclasses import replace

from function_app.domain.jobs import spec_from_json
from function_app.domain.records import RunRecord
from function_app.domain.run_states import RunState
from function_app.runs.requests import request_run
from function_app.runs.submission import claim_run, submit_run
from shared import SPOKEN, asset_version
from tests.support.world import ALL_SHARDS, VERSION, WORKSPACE, World, pipeline
from tests.unit.function_app.web.client import call

LATER = (SPOKEN[-1] + 1,)
SAID = (
    f"the function app supports version {SPOKEN[-1]} of the job contract, and the training's code c{LATER[0]}-0a "
    f"supports {LATER[0]}: run `azd up` from the release that you want, which deploys both"
)


def deploy(world: World, version: str) -> None:
    """Deploy settings that name another code asset."""
    code_id = f"{WORKSPACE.code_id.rpartition('/')[0]}/{version}"
    world.services = replace(world.services, workspace=replace(WORKSPACE, code_id=code_id))


def planned_by_another_release(world: World) -> RunRecord:
    """A run that was planned with its code, before the settings named ours."""
    world.upload_shards(*ALL_SHARDS)
    generation = world.ledger.latest_generation(VERSION)
    assert generation is not None
    deploy(world, asset_version("0a", LATER))
    run = claim_run(pipeline(), generation, trigger="closed", services=world.services)
    deploy(world, asset_version("0b"))
    return run


def test_a_run_that_was_planned_before_an_upgrade_is_refused_with_its_own_code() -> None:
    """Its row names the code of the release that planned it. A new request has the new code, without force."""
    world = World()
    refused = submit_run(planned_by_another_release(world), world.services)
    assert (RunState.FAILED, "configuration", SAID) == (refused.state, refused.failure_class, refused.reason)
    assert [] == world.jobs.submissions
    (sent,) = world.topic.received
    assert f"run `azd up`, then: landfall submit {VERSION}" in sent.content["text"]
    again, is_new = request_run(VERSION, {}, trigger="http", services=world.services)
    world.serve_requests()
    assert (True, RunState.SUBMITTED) == (is_new, world.stands(again).state)


def test_a_job_that_azure_ml_has_is_followed_all_the_same() -> None:
    """The handler that submitted it died, and an upgrade came before the next one."""
    world = World()
    run = planned_by_another_release(world)
    world.jobs.submit(spec_from_json(run.spec))
    assert RunState.SUBMITTED == submit_run(run, world.services).state


def test_the_doctor_finds_the_mismatch() -> None:
    """The fix is the command that deploys both."""
    world = World()
    deploy(world, asset_version("0a", LATER))
    world.services = replace(world.services, in_azure=True)
    checks = {check["part"]: check for check in call(world, "GET", "/api/doctor").json()["checks"]}
    assert ("wrong", SAID, "azd up") == tuple(checks["versions"][name] for name in ("state", "says", "fix"))
