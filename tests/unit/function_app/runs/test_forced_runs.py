"""Training again on purpose: a run of its own, once for each request, and it says so."""

from __future__ import annotations

from function_app.domain.records import RunRecord
from function_app.domain.run_states import RunState
from function_app.runs.following import reconcile_run
from function_app.runs.requests import request_run
from tests.support.world import VERSION, World


def forced(world: World, key: str) -> tuple[RunRecord, bool]:
    """What a request with force is answered."""
    return request_run(VERSION, {}, trigger="http", services=world.services, forced_by=key)


def test_a_forced_request_trains_again_and_says_so_in_story_and_lineage() -> None:
    """Without force the same request meets the run that is there."""
    world = World()
    first = world.finish(world.land_all())
    met, _ = request_run(VERSION, {}, trigger="http", services=world.services)
    run, is_new = forced(world, "key-1")
    world.serve_requests()
    run = world.finish(run)
    assert (first.run_id, True, "registered", "key-1") == (met.run_id, is_new, run.state, run.forced_by)
    models = {model.tags["landfall.run_id"]: model.tags for model in world.models.registered.values()}
    assert (None, "true", "true") == (
        models[first.run_id].get("landfall.forced"),
        models[run.run_id]["landfall.forced"],
        world.jobs.submitted[run.run_id].tags["landfall.forced"],
    )
    assert "run_forced" in world.actions(run.run_id)
    assert "run_forced" in world.actions(VERSION)


def test_the_same_request_repeated_is_the_same_run() -> None:
    """An answer that was lost on the way does not double anything; another key is another wish."""
    world = World()
    world.finish(world.land_all())
    answers = [forced(world, key) for key in ("key-1", "key-1", "key-2")]
    assert ([True, False, True], 2) == ([is_new for _, is_new in answers], len({run.run_id for run, _ in answers}))
    assert 1 == world.actions(answers[0][0].run_id).count("run_forced")


def test_a_forced_run_waits_like_any_other() -> None:
    """The run queue holds for it, too."""
    world = World()
    first = world.land_all()
    run, _ = forced(world, "key-1")
    world.serve_requests()
    assert [first.run_id] == world.jobs.submissions
    world.finish(first)
    assert [first.run_id, run.run_id] == world.jobs.submissions


def test_what_a_lost_run_says_to_do_trains_again() -> None:
    """Asking without force meets the lost run: nobody knows whether it has trained."""
    world = World()
    run = world.land_all()
    world.jobs.forget(run.run_id)
    world.clock.move(hours=1)
    reconcile_run(run.run_id, world.services)
    assert (world.stands(run).reason or "").endswith("To train again: landfall submit digits/v1 --force")
    met, met_is_new = request_run(VERSION, {}, trigger="cli", services=world.services)
    _, forced_is_new = forced(world, "key-1")
    assert (run.run_id, RunState.LOST, False, True) == (met.run_id, met.state, met_is_new, forced_is_new)
