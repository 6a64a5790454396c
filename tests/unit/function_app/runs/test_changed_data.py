"""Shards that are deleted or replaced after they were accepted: the lineage is true, or nothing is registered."""

from __future__ import annotations

import gzip
from dataclasses import replace

import pytest

from function_app.config.registration import Register
from function_app.domain.records import DATA, PERSON, RunRecord, ShardState
from function_app.domain.run_states import RunState
from function_app.runs.cancellation import cancel_run
from function_app.runs.requests import request_run
from function_app.sweep.sweep import sweep
from tests.support.world import ALL_SHARDS, TRAIN_SHARDS, VERSION, World, pipeline, shard_content
from tests.unit.function_app.ingest.test_layouts import FILES, MARKER, marked_world, put

FIRST = TRAIN_SHARDS[0]
PATH = f"digits/v1/{FIRST}"
OTHER_CONTENT = shard_content(7, 7, 7)
CLASS = "data_changed"


def planned(world: World) -> RunRecord:
    """A run that is on record and whose request is still in the queue."""
    world.upload_shards(*ALL_SHARDS)
    run, _ = request_run(VERSION, {}, trigger="http", services=world.services)
    return run


def running(world: World) -> RunRecord:
    """A run whose job has started on the data that were accepted."""
    run = world.upload_version()
    world.jobs.become(run.run_id, "Running")
    return world.follow(run)


def swept(world: World) -> World:
    """The world after a sweep, five minutes later."""
    world.clock.move(minutes=5)
    sweep(world.services)
    world.serve_requests()
    return world


# -- before the closing --------------------------------------------------------------------------------------
def test_a_shard_that_was_deleted_before_its_version_was_whole_does_not_count() -> None:
    """The version stays open, and the ledger says which shard has to come again."""
    world = World()
    world.upload_shards(*TRAIN_SHARDS)
    world.remove(PATH)
    world.upload_shards(*ALL_SHARDS[2:])
    row = world.ledger.shard(VERSION, "train", 0)
    assert row is not None
    assert (None, ShardState.REJECTED, ["set_shard_gone"]) == (
        world.ledger.latest_generation(VERSION),
        row.state,
        [str(reason.code) for reason in row.reasons],
    )


def test_a_deleted_shard_that_comes_again_closes_its_version() -> None:
    """Its upload is the last one that is missing."""
    world = World()
    world.upload_shards(*TRAIN_SHARDS)
    world.remove(PATH)
    world.upload_shards(*ALL_SHARDS[2:])
    world.upload_shards(FIRST)
    world.serve_requests()
    assert RunState.SUBMITTED == world.only_run().state


def test_a_version_does_not_close_with_content_that_is_no_longer_there() -> None:
    """A shard is replaced before the last one comes; its new content closes the version, once."""
    world = World()
    world.upload_shards(*TRAIN_SHARDS)
    world.put(FIRST, OTHER_CONTENT)
    world.upload_shards(*ALL_SHARDS[2:])
    assert world.ledger.latest_generation(VERSION) is None
    world.deliver(PATH)
    assert [1] == [closing.number for closing in world.ledger.generations(VERSION)]


# -- before the submission -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("content", "problem"),
    [(None, f"{FIRST} was deleted"), (OTHER_CONTENT, f"{FIRST} was written again and not yet judged")],
    ids=["deleted", "replaced"],
)
def test_no_job_is_paid_for_whose_data_are_not_those_that_were_accepted(content: bytes | None, problem: str) -> None:
    """The run waits and says which shard differs."""
    world = World()
    run = planned(world)
    world.remove(PATH)
    if content is not None:
        world.put(FIRST, content)
    world.serve_requests()
    reasons = [entry.reason for entry in world.ledger.history(run.run_id)]
    assert ({}, f"it waits: its data differ from those that were accepted: {problem}") == (
        world.jobs.submitted,
        reasons[-1],
    )


def test_a_shard_that_is_undeleted_is_judged_again_and_its_run_is_submitted() -> None:
    """Soft delete gives it back with its old ETag, and the sweep has passed over this very listing before."""
    world = World()
    world.finish(world.upload_version())
    swept(world)
    run, _ = request_run(VERSION, {}, trigger="http", services=world.services, forced_by="a key")
    blob = world.shards.blobs[PATH]
    world.remove(PATH)
    world.serve_requests()
    world.shards.blobs[PATH] = blob
    before = world.stands(run).state
    swept(swept(world))
    assert (RunState.PLANNED, RunState.SUBMITTED) == (before, world.stands(run).state)


def test_a_deleted_shard_reopens_its_version() -> None:
    """Its verdict and its count are gone with it."""
    world = World()
    planned(world)
    world.remove(PATH)
    world.serve_requests()
    assert 0 == world.ledger.accepted_in_bucket(VERSION, "train", 0)


def test_a_run_that_waits_for_its_data_starts_when_they_are_back() -> None:
    """The same content is the same closing: its run is submitted by the sweep."""
    world = World()
    run = planned(world)
    content = world.shards.blobs[PATH][1]
    world.remove(PATH)
    world.serve_requests()
    world.deliver(world.put(FIRST, content))
    assert RunState.SUBMITTED == swept(world).stands(run).state


def test_a_run_that_waits_for_its_data_holds_up_no_other() -> None:
    """Another version of the same pipeline trains meanwhile, although the waiting run was admitted before."""
    world = World()
    waiting = planned(world)
    world.remove(PATH)
    world.serve_requests()
    assert ("v2", RunState.SUBMITTED, RunState.PLANNED) == (
        (other := world.train(version="v2")).dataset_version.version,
        other.state,
        world.stands(waiting).state,
    )


def test_a_run_that_waits_for_its_data_gives_way_to_a_newer_generation() -> None:
    """Other content came in the place of the deleted one."""
    world = World()
    world.change_pipeline(on_change="train")
    run = planned(world)
    world.remove(PATH)
    world.serve_requests()
    newer = world.change_shard(5)
    assert (RunState.SUPPRESSED, RunState.SUBMITTED) == (swept(world).stands(run).state, world.stands(newer).state)


# -- when the job starts -------------------------------------------------------------------------------------
@pytest.mark.parametrize("is_replaced", [True, False], ids=["replaced", "deleted"])
def test_a_job_that_starts_on_other_data_is_canceled(is_replaced: bool) -> None:  # noqa: FBT001
    """It could not be registered, and would be paid for."""
    world = World()
    run = world.upload_version()
    world.remove(PATH)
    if is_replaced:
        world.deliver(world.put(FIRST, OTHER_CONTENT))
    world.jobs.become(run.run_id, "Running")
    run = world.follow(run)
    job = world.jobs.status(run.run_id)
    assert job is not None
    ended = world.follow(run)
    assert (DATA, "Canceled", RunState.CANCELED, CLASS) == (
        run.canceled_by,
        job.status,
        ended.state,
        ended.failure_class,
    )


def test_a_run_that_lost_its_data_can_be_requested_again_without_force() -> None:
    """The same content was uploaded again meanwhile."""
    world = World()
    run = world.upload_version()
    content = world.shards.blobs[PATH][1]
    world.remove(PATH)
    world.jobs.become(run.run_id, "Running")
    world.finish(world.follow(run), "Canceled")
    world.deliver(world.put(FIRST, content))
    again, is_new = request_run(VERSION, {}, trigger="http", services=world.services)
    assert (True, True) == (is_new, again.run_id != run.run_id)


# -- before the registration ---------------------------------------------------------------------------------
def test_nothing_is_registered_whose_data_were_replaced_while_it_trained() -> None:
    """The same size with other labels: only the content differs."""
    world = World()
    world.change_pipeline(on_change="train")
    run = running(world)
    labels = len(world.shards.blobs[PATH][1]) // len(shard_content(1))
    world.deliver(world.put(FIRST, shard_content(*[9] * labels)))
    ended = world.finish(run)
    assert (RunState.NOT_REGISTERED, CLASS, {}) == (ended.state, ended.failure_class, world.models.registered)


def test_nothing_is_registered_whose_data_were_deleted_while_it_trained() -> None:
    """The reason names the shard."""
    world = World()
    run = running(world)
    world.remove(PATH)
    ended = world.finish(run)
    assert (RunState.NOT_REGISTERED, True) == (ended.state, f"{FIRST} was deleted" in str(ended.reason))


def test_nothing_is_registered_whose_shards_were_written_again_while_it_trained() -> None:
    """The same content is there in the end; what was read in between is not known."""
    world = World()
    run = running(world)
    content = world.shards.blobs[PATH][1]
    world.put(FIRST, OTHER_CONTENT)
    world.deliver(world.put(FIRST, content))
    assert (RunState.NOT_REGISTERED, CLASS) == ((ended := world.finish(run)).state, ended.failure_class)


def test_an_attempt_does_not_continue_on_shards_that_were_written_since_the_first() -> None:
    """Its checkpoint comes from the earlier ones."""
    world = World()
    run = running(world)
    world.jobs.become(run.run_id, "Failed", error="The job was preempted")
    content = world.shards.blobs[PATH][1]
    world.follow(run)
    world.deliver(world.put(FIRST, content))
    world.serve_requests()
    attempt, reason = world.ledger.runs()[0], "its shards were written again since its first attempt"
    assert (2, RunState.CANCELED, reason) == (attempt.attempt, attempt.state, attempt.reason)


@pytest.mark.parametrize(
    "error", ["The job was preempted", "exited with status code 10.", "exited with status code 1."]
)
def test_a_job_that_fails_while_its_data_change_is_not_to_blame(error: str) -> None:
    """There is no further attempt, no hold and no blame on the script: the same content may be requested again."""
    world = World()
    run = running(world)
    content = world.shards.blobs[PATH][1]
    world.remove(PATH)
    world.jobs.become(run.run_id, "Failed", error=error)
    failed = world.follow(run)
    world.deliver(world.put(FIRST, content))
    again, is_new = request_run(VERSION, {}, trigger="http", services=world.services)
    world.serve_requests()
    texts = [one.content["text"] for one in world.topic.received]
    assert (RunState.FAILED, CLASS, "stop", None, True, RunState.SUBMITTED) == (
        failed.state,
        failed.failure_class,
        failed.remedy,
        failed.next_run_id,
        is_new,
        world.stands(again).state,
    )
    assert f"{FIRST} was deleted" in texts[-1]
    assert "To train on the data as they are: landfall submit digits/v1." in texts[-1]


def test_after_a_forced_run_the_advice_is_to_force_again() -> None:
    """Without force the version's earlier run would be returned, here one that a person canceled."""
    world = World()
    first = running(world)
    cancel_run(first.run_id, canceled_by=PERSON, reason="enough", services=world.services)
    world.jobs.become(first.run_id, "Canceled")
    world.follow(first)
    forced, _ = request_run(VERSION, {}, trigger="http", services=world.services, forced_by="a key")
    world.serve_requests()
    content = world.shards.blobs[PATH][1]
    world.remove(PATH)
    world.jobs.become(forced.run_id, "Failed", error="The job was preempted")
    world.follow(forced)
    world.deliver(world.put(FIRST, content))
    unforced, is_new = request_run(VERSION, {}, trigger="http", services=world.services)
    assert (first.run_id, False) == (unforced.run_id, is_new)
    text = world.topic.received[-1].content["text"]
    assert "To train on the data as they are: landfall submit digits/v1 --force." in text


@pytest.mark.parametrize("is_waiting", [True, False], ids=["waiting", "training"])
def test_content_that_comes_back_as_a_newer_generation_is_trained_on(is_waiting: bool) -> None:  # noqa: FBT001
    """The first run of that content is given up, or not registered, so the newer generation has its own."""
    world = World()
    world.change_pipeline(on_change="train")
    run = planned(world) if is_waiting else running(world)
    world.requests.messages.clear()  # the sweep would ask again for the run that waits
    content = world.shards.blobs[PATH][1]
    world.deliver(world.put(FIRST, OTHER_CONTENT))
    world.deliver(world.put(FIRST, content))
    world.serve_requests()
    if not is_waiting:
        world.finish(run)
    world.serve_requests()
    swept(world)
    newest = world.ledger.runs()[0]
    world.jobs.become(newest.run_id, "Running")
    ended = world.finish(world.follow(newest))
    closings = [(closing.number, closing.fingerprint) for closing in world.ledger.generations(VERSION)]
    assert (3, True) == (len(closings), closings[0][1] == closings[2][1])
    assert (3, RunState.REGISTERED, False) == (
        ended.generation,
        ended.state,
        world.stands(run).model_name is not None,
    )


def test_data_on_hold_are_not_what_a_change_leads_to() -> None:
    """The next generation is trained on as usual."""
    world = World()
    world.change_pipeline(on_change="train")
    run = running(world)
    newer = world.change_shard(5)
    world.finish(run)
    assert RunState.SUBMITTED == world.stands(newer).state


def superseded_after_its_end(world: World) -> RunRecord:
    """A run that has ended, and whose data are superseded before it is registered."""
    run = running(world)
    world.end_job(run)
    ended = replace(run, state=RunState.COMPLETED, ended_at=world.clock())
    world.ledger.run_rows[run.run_id] = ended
    world.clock.move(minutes=5)
    world.deliver(world.put(FIRST, OTHER_CONTENT))
    return world.follow(ended)


def test_a_model_whose_data_were_superseded_after_it_was_trained_says_so() -> None:
    """Registration, notification and the run's row say so."""
    world = World()
    world.change_pipeline(on_change="train")
    run = superseded_after_its_end(world)
    words = "generation 1 was superseded by generation 2 before the run ended"
    (model,) = world.models.registered.values()
    texts = [one.content["text"] for one in world.topic.received]
    assert (RunState.REGISTERED, words, True, True) == (
        run.state,
        model.tags["landfall.superseded"],
        words in str(run.reason),
        words in texts[-1],
    )


def test_a_pipeline_may_keep_models_of_superseded_data_unregistered() -> None:
    """``register.superseded: keep``."""
    world = World()
    world.change_pipeline(on_change="train", register_=Register(model="digits-cnn", superseded="keep"))
    run = superseded_after_its_end(world)
    assert (RunState.NOT_REGISTERED, {}, None) == (run.state, world.models.registered, run.failure_class)


# -- files beside those of the manifest ----------------------------------------------------------------------
ADDED = "split=train/part-00009-zz.c000.tfrecord"


def closed_by_a_marker(script: str) -> World:
    """A version with files of any names that has just been closed, and whose run is not submitted yet."""
    world = marked_world(train=pipeline().train.model_copy(update={"script": script}), on_change="train")
    world.services = replace(world.services, read_script=lambda _: b"import horovod.tensorflow as hvd\nhvd.init()\n")
    for name in (*FILES, MARKER):
        world.deliver(put(world, name))
    return world


@pytest.mark.parametrize(
    ("script", "state", "reason"),
    [
        ("scripts/mine.py", RunState.NOT_REGISTERED, f"{ADDED} was added"),
        ("training_job.train", RunState.REGISTERED, ""),
    ],
)
def test_a_file_that_is_added_may_have_been_read_by_a_script(script: str, state: RunState, reason: str) -> None:
    """Landfall's own training reads what the manifest names."""
    world = closed_by_a_marker(script)
    world.serve_requests()
    (run,) = world.ledger.runs()
    world.jobs.become(run.run_id, "Running")
    world.follow(run)
    put(world, ADDED)
    ended = world.finish(world.stands(run))
    assert (state, True) == (ended.state, reason in str(ended.reason)), ended.reason


def test_a_script_does_not_start_beside_files_of_the_next_generation() -> None:
    """It waits, and gives way to that generation once its marker is written."""
    world = closed_by_a_marker("scripts/mine.py")
    world.deliver(put(world, ADDED))
    world.serve_requests()
    assert ([RunState.PLANNED], {}) == ([run.state for run in world.ledger.runs()], world.jobs.submitted)
    world.deliver(put(world, MARKER))
    world.serve_requests()
    newest = world.ledger.runs()[0]
    assert (2, RunState.SUBMITTED, [newest.run_id]) == (newest.generation, newest.state, list(world.jobs.submitted))


def test_a_file_without_records_beside_them_changes_nothing() -> None:
    """Spark writes one for a partition without any."""
    world = closed_by_a_marker("scripts/mine.py")
    world.clock.move(seconds=2)
    world.deliver(world.put(f"{ADDED}.gz", gzip.compress(b"")))
    world.serve_requests()
    assert [RunState.SUBMITTED] == [run.state for run in world.ledger.runs()]
