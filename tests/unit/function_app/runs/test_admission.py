"""Generations and the run queue: one run of a pipeline is active, others wait, and none is forgotten."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from function_app.domain.events import TrainingRequest
from function_app.domain.run_states import RunState
from function_app.runs.requests import request_run
from function_app.runs.submission import handle_request, submit_run
from function_app.sweep.sweep import sweep
from tests.support.threads import at_once
from tests.support.world import ALL_SHARDS, TRAIN_SHARDS, VERSION, World, shard_content


def training_world(on_change: str = "train") -> World:
    """A world whose pipeline trains again when a shard changes."""
    world = World()
    world.change_pipeline(on_change=on_change)
    return world


def test_identical_bytes_uploaded_again_change_nothing() -> None:
    """Another ETag, the same fingerprint: no generation, no run, no word to anybody."""
    world = training_world()
    run = world.upload_version()
    for name in ALL_SHARDS:
        world.deliver(world.put(name))
    world.serve_requests()
    assert (1, [run.run_id], []) == (
        len(world.ledger.generation_rows),
        world.jobs.submissions,
        world.topic.received,
    )


def test_a_changed_shard_is_notified_by_default_and_trains_nothing() -> None:
    """People decide; the generation before is superseded."""
    world = World()
    world.upload_version()
    world.change_shard(5)
    assert (2, 1, ["version_changed"]) == (
        len(world.ledger.generations(VERSION)),
        len(world.jobs.submissions),
        [n.outcome for n in world.topic.received],
    )
    assert "generation_superseded" in world.actions(VERSION)


def test_a_changed_shard_trains_again_when_the_run_before_has_ended() -> None:
    """One goes, the other waits, and starts by itself."""
    world = training_world()
    first = world.upload_version()
    second = world.change_shard(5)
    assert (RunState.PLANNED, "run_armed") == (second.state, world.actions(second.run_id)[-1])
    world.finish(first)
    assert (RunState.SUBMITTED, [first.run_id, second.run_id]) == (
        world.stands(second).state,
        world.jobs.submissions,
    )


def test_of_many_changes_the_newest_is_queued_and_the_others_say_why_not() -> None:
    """Exactly one follow-up, whatever arrives."""
    world = training_world()
    first = world.upload_version()
    later = [world.change_shard(label) for label in (5, 6, 7)]
    world.finish(first)
    states = [world.stands(run).state for run in later]
    assert [RunState.SUPPRESSED, RunState.SUPPRESSED, RunState.SUBMITTED] == states
    assert f"superseded by generation 3 while it was queued: {later[1].run_id}" == world.stands(later[0]).reason
    assert [first.run_id, later[2].run_id] == world.jobs.submissions
    received = [(n.subject, n.outcome) for n in world.topic.received]
    assert [("digits/v1", "version_waiting"), (first.run_id, "not_registered")] == received


def test_another_version_of_the_dataset_waits_too() -> None:
    """The pipeline has one place, whatever is trained in it."""
    world = World()
    first = world.train()
    second = world.train(version="v2")
    assert RunState.PLANNED == second.state
    world.finish(first)
    assert RunState.SUBMITTED == world.stands(second).state


def test_an_admitted_run_whose_data_have_changed_does_not_start() -> None:
    """Its shards are not there any more; here the change is notified, and nothing else follows."""
    world = World()
    first = world.train(version="v0")
    second = world.train()
    world.change_shard(5)
    world.finish(first)
    run = world.stands(second)
    assert (RunState.SUPPRESSED, "superseded by generation 2 before it was submitted") == (run.state, run.reason)
    assert ([first.run_id], ()) == (world.jobs.submissions, world.ledger.queue.running)


def test_cancel_and_train_ends_the_old_run_and_starts_the_new_one() -> None:
    """The old one ends canceled, which is notified once, and the new one follows by itself."""
    world = training_world("cancel_and_train")
    first = world.upload_version()
    second = world.change_shard(5)
    world.finish(first, "Canceled")
    old = world.stands(first)
    assert (RunState.CANCELED, "superseded by generation 2") == (old.state, old.reason)
    assert (RunState.SUBMITTED, [(first.run_id, "canceled")]) == (
        world.stands(second).state,
        [(n.subject, n.outcome) for n in world.topic.received],
    )


def test_cancel_and_train_leaves_another_version_alone() -> None:
    """Its data have not changed."""
    world = training_world("cancel_and_train")
    other = world.train(version="v0")
    world.train()
    world.change_shard(5)
    assert (RunState.SUBMITTED, None) == (world.stands(other).state, world.stands(other).cancel_requested_at)


def test_content_that_comes_back_is_trained_where_its_run_was_given_up() -> None:
    """Generation 3 holds the bytes of generation 1, whose run was canceled for generation 2."""
    world = training_world("cancel_and_train")
    first = world.upload_version()
    second = world.change_shard(5)
    world.finish(first, "Canceled")
    world.deliver(world.put(TRAIN_SHARDS[0]))
    world.serve_requests()
    world.finish(second, "Canceled")
    third = world.ledger.runs()[0]
    assert (3, RunState.SUBMITTED, first.fingerprint) == (third.generation, third.state, third.fingerprint)
    assert third.run_id not in (first.run_id, second.run_id)


def test_content_that_comes_back_is_not_trained_again_where_its_model_is_there() -> None:
    """Nothing would come of it that is not there already."""
    world = training_world()
    first = world.upload_version()
    world.finish(first)
    world.finish(world.change_shard(5))
    world.deliver(world.put(TRAIN_SHARDS[0]))
    world.serve_requests()
    assert (2, "request_suppressed") == (len(world.ledger.runs()), world.actions(first.run_id)[-1])


def test_no_more_runs_go_than_the_limit_over_all_pipelines() -> None:
    """The place that comes free goes to who has waited longest."""
    world = World()
    world.add_pipelines("a", "b", "c")
    world.services = replace(world.services, max_concurrent_runs=2)
    runs = {name: world.train(dataset=name) for name in ("digits", "a", "b", "c")}
    assert [runs["digits"].run_id, runs["a"].run_id] == world.jobs.submissions
    assert (
        "waits for runs of other pipelines: active runs are limited to 2"
        in world.ledger.history(runs["b"].run_id)[-1].reason
    )
    world.finish(runs["a"])
    world.finish(runs["digits"])
    assert [runs["b"].run_id, runs["c"].run_id] == world.jobs.submissions[2:]


def test_a_suppressed_request_that_is_repeated_gets_a_run_of_its_own() -> None:
    """It was never submitted, so nothing stands in its way but its name."""
    world = World()
    first = world.train()
    request_run(VERSION, {"epochs": 5}, trigger="http", services=world.services)
    world.serve_requests()
    request_run(VERSION, {"epochs": 6}, trigger="http", services=world.services)
    world.serve_requests()
    world.finish(first)
    again, is_new = request_run(VERSION, {"epochs": 5}, trigger="http", services=world.services)
    suppressed = [run for run in world.ledger.runs() if run.state is RunState.SUPPRESSED]
    assert (True, 1, False) == (is_new, len(suppressed), again.run_id == suppressed[0].run_id)


def test_a_place_whose_run_ended_unseen_is_given_up_by_the_sweep() -> None:
    """The handler died between the end and the landing."""
    world = World()
    first = world.train()
    second = world.train(version="v2")
    world.ledger.run_rows[first.run_id] = replace(first, state=RunState.FAILED, notified_at=world.clock())
    world.clock.move(minutes=5)
    sweep(world.services)
    world.serve_requests()
    assert RunState.SUBMITTED == world.stands(second).state


def test_a_launch_whose_message_was_lost_is_made_up_for_by_the_sweep() -> None:
    """The place is taken, the run is planned, and no handler came."""
    world = World()
    first = world.train()
    second = world.train(version="v2")
    world.end_job(first)
    world.clock.move(minutes=5)
    sweep(world.services)
    world.requests.messages.clear()
    world.clock.move(minutes=5)
    sweep(world.services)
    assert RunState.SUBMITTED == world.stands(second).state


def test_a_run_that_waits_adds_no_line_at_every_sweep() -> None:
    """It says once what it waits for."""
    world = World()
    world.train()
    second = world.train(version="v2")
    lines = len(world.ledger.history(second.run_id))
    for _ in range(3):
        world.clock.move(minutes=5)
        sweep(world.services)
        world.serve_requests()
    assert lines == len(world.ledger.history(second.run_id))


@pytest.mark.parametrize("attempt", range(5))
def test_of_many_handlers_at_once_one_run_is_admitted_and_one_is_queued(attempt: int) -> None:
    """Eight versions close at the same time, and only the latest counts: one job, one queued, six suppressed."""
    world = World()
    world.change_pipeline(when_busy="latest")
    for number in range(8):
        world.upload_shards(*ALL_SHARDS, version=f"v{attempt}{number}")
    messages = [TrainingRequest.from_json(message) for message in world.requests.messages]
    world.requests.messages.clear()
    at_once([partial(handle_request, request, world.services) for request in messages])
    world.serve_requests()
    states = sorted(run.state for run in world.ledger.runs())
    assert ["planned", "submitted", *["suppressed"] * 6] == states


def test_a_handler_that_read_the_run_long_ago_does_no_harm() -> None:
    """It was suppressed meanwhile: the board forgets it again, and what waits still starts."""
    world = training_world()
    first = world.upload_version()
    stale = world.change_shard(5)
    third = world.change_shard(6)
    submit_run(stale, world.services)
    world.finish(first)
    assert (RunState.SUPPRESSED, RunState.SUBMITTED) == (world.stands(stale).state, world.stands(third).state)


def test_the_bytes_of_a_shard_decide_and_not_its_upload() -> None:
    """Back and forth within one generation's time: each change is a generation of its own."""
    world = training_world()
    world.upload_version()
    world.change_shard(5)
    world.deliver(world.put(TRAIN_SHARDS[0], shard_content(5)))
    assert 2 == len(world.ledger.generations(VERSION))
