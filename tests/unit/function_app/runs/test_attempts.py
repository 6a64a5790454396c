"""Another attempt: where it helps, as often and for as much as the pipeline allows, with one notification."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from function_app.config.pipelines import Attempts
from function_app.domain.errors import VersionQuarantinedError
from function_app.domain.failures import FailureClass, Remedy
from function_app.domain.jobs import with_expected_machines
from function_app.domain.records import PERSON, RunRecord
from function_app.domain.run_states import RunState
from function_app.runs.attempts import per_process_batch_size
from function_app.runs.cancellation import cancel_run
from function_app.runs.requests import request_run
from function_app.sweep.sweep import sweep
from tests.support.world import VERSION, World, clusters, pipeline

PREEMPTED = "The job was preempted"
NO_QUOTA = "Not enough quota for Standard_NC6s_v3"
OUT_OF_MEMORY = "OOM when allocating tensor"
BIGGER, CPU = "landfall-a100", "landfall-cpu"


def world_with(**attempts: Any) -> World:
    """A world whose pipeline bounds its attempts."""
    world = World()
    world.change_pipeline(attempts=Attempts(**attempts))
    return world


def fail(world: World, run: RunRecord, error: str = PREEMPTED, *, after_hours: float = 0.0) -> RunRecord:
    """Let a run's job run, fail and be looked at; return the newest run there is."""
    world.jobs.become(run.run_id, "Running")
    world.follow(run)
    world.clock.move(hours=after_hours)
    world.jobs.become(run.run_id, "Failed", error=error)
    world.follow(run)
    world.serve_requests()
    return world.ledger.runs()[0]


def outcomes(world: World) -> list[tuple[str, str]]:
    """Return what the topic received."""
    return [(n.subject, n.outcome) for n in world.topic.received]


def test_a_preempted_run_goes_on_from_its_checkpoint_under_the_next_name() -> None:
    """The same logical run, the same checkpoints, a report and a model of its own; nothing is notified yet."""
    world = World()
    first = world.upload_version()
    second = fail(world, first)
    assert (f"{first.logical_run}-a2", 2, RunState.SUBMITTED, []) == (
        second.run_id,
        second.attempt,
        second.state,
        outcomes(world),
    )
    before, after = first.spec, second.spec
    assert ["checkpoints"] == [
        name for name in before["outputs"] if before["outputs"][name] == after["outputs"][name]
    ]
    assert (before["command"], second.run_id) == (after["command"], after["tags"]["landfall.run_id"])
    assert "attempt 2)" in after["display_name"]
    stored = world.stands(first)
    assert ("preempted", "resume", second.run_id) == (stored.failure_class, stored.remedy, stored.next_run_id)


def test_recipients_are_notified_once_how_the_logical_run_ended() -> None:
    """Two attempts fail, the third is registered; the history has each decision."""
    world = World()
    first = world.upload_version()
    third = fail(world, fail(world, first))
    assert RunState.REGISTERED == world.finish(third).state
    assert [(third.run_id, "registered")] == outcomes(world)
    history = world.actions(first.run_id)
    assert ["failure_classified", "attempt_planned"] == history[history.index("failure_classified") :][:2]


def test_attempts_are_bounded_and_the_failure_of_the_last_is_notified() -> None:
    """There is one notification with the failure class and the reason for not retrying."""
    world = world_with(max=2)
    last = fail(world, fail(world, world.upload_version()))
    assert (2, RunState.FAILED, "stop", "2 of 2 attempts were made") == (
        last.attempt,
        last.state,
        last.remedy,
        last.remedy_reason,
    )
    assert [(last.run_id, "failed")] == outcomes(world)
    assert "preempted" == world.topic.received[0].content["failure_class"]


@pytest.mark.parametrize("error", ["exited with status code 13.", "Image build failed", ""])
def test_what_no_repetition_corrects_is_not_repeated(error: str) -> None:
    """User code, an image that cannot be built, and what cannot be explained."""
    world = World()
    run = fail(world, world.upload_version(), error)
    assert (1, "stop", RunState.FAILED) == (run.attempt, run.remedy, run.state)


def test_without_room_on_the_cluster_the_next_size_is_tried_and_then_waited_for() -> None:
    """Each of the list once; the environment follows the size."""
    world = world_with(other_clusters=(BIGGER,), wait_s=600, max=3)
    second = fail(world, world.upload_version(), NO_QUOTA)
    assert ("landfall-a100", 8, 16, None) == (
        second.spec["compute"],
        second.spec["processes_per_node"],
        second.world_size,
        second.spec["environment_variables"].get("NCCL_IB_DISABLE"),
    )
    third = fail(world, second, NO_QUOTA)
    assert (RunState.PLANNED, "landfall-a100", 600) == (
        third.state,
        third.spec["compute"],
        round(((third.not_before or third.created_at) - third.created_at).total_seconds()),
    )


def test_an_attempt_that_waits_starts_when_its_time_has_come() -> None:
    """The sweep brings it on its way, not before."""
    world = world_with(wait_s=600)
    second = fail(world, world.upload_version(), NO_QUOTA)
    states = []
    for _ in range(3):
        world.clock.move(minutes=5)
        sweep(world.services)
        states.append(world.stands(second).state)
    assert [RunState.PLANNED, RunState.SUBMITTED] == [states[0], states[-1]]


TOO_FEW = (
    "Execution failed. User process 'python' exited with status code 20. Please check log file "
    "'user_logs/std_log_process_00.txt' for error details. Error: training failed (rank 0): Expected 2 ranks on 2 "
    "nodes; the launcher started 1, 1 of them on this node."
)


def test_missing_ranks_are_not_tried_again() -> None:
    """The launcher would start as few again. The run has failed, with the counts, and no data are held."""
    world = world_with(wait_s=600, max=5)
    first = world.upload_version()
    ended = world.stands(fail(world, first, TOO_FEW))
    assert (first.run_id, RunState.FAILED, "missing_resources", "stop") == (
        ended.run_id,
        ended.state,
        ended.failure_class,
        ended.remedy,
    )
    [text] = [str(note.content["text"]) for note in world.topic.received]
    for words in ("Expected 2 ranks on 2 nodes; the launcher started 1", "data are not the cause"):
        assert words in text
    again, is_new = request_run(VERSION, {}, trigger="http", services=world.services)
    assert (True, True) == (is_new, again.logical_run != first.logical_run)


def test_packages_that_do_not_install_are_named_with_what_to_do() -> None:
    """They would not install in another attempt; no data are held, and people read the command."""
    world = world_with(max=5)
    error = "Image build failed: No matching distribution found for nosuch==1.0"
    ended = world.stands(fail(world, world.upload_version(), error))
    assert ("packages", "stop", 1) == (ended.failure_class, ended.remedy, ended.attempt)
    [text] = [str(note.content["text"]) for note in world.topic.received]
    for words in ("nosuch==1.0", "correct the packages of train.environment and run landfall publish"):
        assert words in text
    _, is_new = request_run(VERSION, {}, trigger="http", services=world.services)
    assert is_new


def test_a_pipeline_may_have_missing_ranks_tried_again() -> None:
    """Fresh nodes are used, as idle ones leave during the wait; the limit of attempts applies."""
    world = world_with(wait_s=600, max=2, remedies={FailureClass.MISSING_RESOURCES: Remedy.WAIT})
    first = world.upload_version()
    second = fail(world, first, TOO_FEW)
    assert ("wait", 2, RunState.PLANNED) == (world.stands(first).remedy, second.attempt, second.state)


def test_the_next_size_has_expectations_of_its_own() -> None:
    """Its own number of ranks, and its own device; the command of an older deployment states none."""
    world = world_with(other_clusters=(BIGGER, CPU))
    second = fail(world, world.upload_version(), NO_QUOTA)
    third = fail(world, second, NO_QUOTA)
    ends = [str(run.spec["command"]).partition(" --expected")[2] for run in (second, third)]
    assert [
        "-world-size 16 --expected-nodes 2 --expected-device gpu",
        "-world-size 8 --expected-nodes 2 --expected-device cpu",
    ] == ends
    older = "python -m training_job.train --epochs 3"
    assert older == with_expected_machines(older, world_size=16, vm_size="Standard_ND96asr_v4")


def test_without_memory_half_the_batch_is_tried() -> None:
    """The global batch stays: twice as many batches for each step."""
    world, train = World(), pipeline().train
    world.change_pipeline(
        train=train.model_copy(update={"options": replace(train.options, per_process_batch_size=4)})
    )
    second = fail(world, world.upload_version(), OUT_OF_MEMORY)
    assert "--per-process-batch-size 2 --gradient-accumulation 2 " in second.spec["command"]
    third = fail(world, second, OUT_OF_MEMORY)
    assert "--per-process-batch-size 1 --gradient-accumulation 4 " in third.spec["command"]


def test_a_users_script_keeps_its_arguments_without_memory_too() -> None:
    """A flag of the same name may mean the global batch; nothing else would be changed to fit."""
    own = "python -m training_job.machines scripts/mine.py --per-process-batch-size 4"
    assert (None, 4) == (
        per_process_batch_size(own),
        per_process_batch_size(own.replace("machines scripts/mine.py", "train")),
    )


def test_the_pipelines_own_remedy_goes_before_the_built_in_one() -> None:
    """Here a time limit is no reason to stop."""
    world = world_with(remedies={FailureClass.TIMEOUT: Remedy.RESUME})
    run = world.upload_version()
    world.clock.move(hours=2)
    world.jobs.become(run.run_id, "Canceled")
    world.follow(run)
    assert ("timeout", 2) == (world.stands(run).failure_class, world.ledger.runs()[0].attempt)


@pytest.mark.parametrize(
    ("ran_s", "minutes", "expected"), [(3601.0, 56, ("timeout", 2)), (3500.0, 64, ("canceled", 1))]
)
def test_azure_mls_clock_decides_whether_a_job_reached_its_time_limit(
    ran_s: float, minutes: int, expected: tuple[str, int]
) -> None:
    """Landfall may see the start or the end of a job only with the next sweep."""
    world = world_with(remedies={FailureClass.TIMEOUT: Remedy.RESUME})
    run = world.upload_version()
    world.jobs.become(run.run_id, "Running")
    world.follow(run)
    world.clock.move(minutes=minutes)
    world.jobs.become(run.run_id, "Canceled", ran_s=ran_s)
    world.follow(run)
    assert expected == (world.stands(run).failure_class, world.ledger.runs()[0].attempt)


def test_node_hours_are_bounded_and_the_next_attempt_gets_what_is_left() -> None:
    """Two nodes for 1.25 hours of 3 leave two nodes 15 minutes, and then nothing."""
    world = world_with(max_node_hours=3.0)
    second = fail(world, world.upload_version(), after_hours=1.25)
    assert 899 <= second.spec["timeout_s"] <= 900
    last = fail(world, second, after_hours=0.25)
    assert (2, "stop", "nothing is left of attempts.max_node_hours") == (
        last.attempt,
        last.remedy,
        last.remedy_reason,
    )


def test_money_is_bounded_at_the_pipelines_prices() -> None:
    """Three attempts are allowed, and paid for is one and a half."""
    world = World()
    priced = clusters(vm_size="Standard_NC24ads_A100_v4", price_per_node_hour=3.0)
    world.change_pipeline(priced, attempts=Attempts(max_cost=9.0))
    second = fail(world, world.upload_version(), after_hours=1.0)
    assert 1799 <= second.spec["timeout_s"] <= 1800
    last = fail(world, second, after_hours=0.5)
    assert "nothing is left of attempts.max_cost" == last.remedy_reason


def test_data_that_make_a_training_fail_are_held() -> None:
    """Nothing trains on them again unless a person forces it; this is notified once."""
    world = World()
    run = fail(world, world.upload_version(), "exited with status code 10.")
    assert ("data", "quarantine", [(run.run_id, "failed")]) == (run.failure_class, run.remedy, outcomes(world))
    assert 1 == world.actions(VERSION).count("version_quarantined")
    with pytest.raises(VersionQuarantinedError, match=f"on hold: run {run.run_id} failed on its data"):
        request_run(VERSION, {"epochs": 5}, trigger="http", services=world.services)
    forced, is_new = request_run(VERSION, {}, trigger="http", services=world.services, forced_by="k")
    assert (True, "k") == (is_new, forced.forced_by)


def test_data_that_have_changed_are_not_tried_again() -> None:
    """The shards of the older generation are not there any more; the newer one follows."""
    world = World()
    world.change_pipeline(on_change="train")
    first = world.upload_version()
    world.jobs.become(first.run_id, "Running")
    world.follow(first)
    second = world.change_shard(5)
    fail(world, first)
    stored = world.stands(first)
    assert ("stop", "its data are superseded by generation 2") == (stored.remedy, stored.remedy_reason)
    assert RunState.SUBMITTED == world.stands(second).state


def test_an_attempt_keeps_its_runs_place() -> None:
    """What is queued behind the run waits for its last attempt."""
    world = World()
    first = world.train()
    queued = world.train(version="v2")
    fail(world, first)
    second = world.ledger.run(f"{first.logical_run}-a2")
    assert second is not None
    assert (RunState.SUBMITTED, RunState.PLANNED) == (second.state, world.stands(queued).state)
    world.finish(second)
    assert RunState.SUBMITTED == world.stands(queued).state


def test_a_run_that_a_person_canceled_is_not_tried_again() -> None:
    """This holds even if its job then fails, or if the attempt was only planned."""
    world = world_with(wait_s=600)
    first = world.upload_version()
    second = fail(world, first, NO_QUOTA)
    found = cancel_run(first.run_id, canceled_by=PERSON, reason="enough", services=world.services)
    for _ in range(4):
        world.clock.move(minutes=5)
        sweep(world.services)
    assert (second.run_id, RunState.CANCELED, [(second.run_id, "canceled")], [first.run_id]) == (
        found.run_id,
        found.state,
        outcomes(world),
        world.jobs.submissions,
    )


def test_canceled_in_the_studio_is_not_tried_again() -> None:
    """Azure ML says Canceled long before the time limit: a person was it."""
    world = World()
    run = world.finish(world.upload_version(), "Canceled")
    assert (RunState.CANCELED, "canceled", "stop", 1) == (
        run.state,
        run.failure_class,
        run.remedy,
        len(world.ledger.runs()),
    )


def test_a_handler_that_died_before_the_attempt_was_planned_is_made_up_for() -> None:
    """What was decided stands on the run's row from the write that made it failed."""
    world = World()
    first = world.upload_version()
    second = fail(world, first)
    del world.ledger.run_rows[second.run_id]
    stored = world.stands(first)
    world.ledger.run_rows[first.run_id] = type(stored)(**{**vars(stored), "next_run_id": None})
    sweep(world.services)
    world.serve_requests()
    assert second.run_id in world.ledger.run_rows
