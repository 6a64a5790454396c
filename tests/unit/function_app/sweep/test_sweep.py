"""The sweep: everything that can be missed is found again, and nothing that is well is touched."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from function_app.domain.errors import ServiceUnavailableError
from function_app.domain.jobs import JobStatus
from function_app.domain.run_states import RunState
from function_app.sweep.sweep import SweepError, sweep
from function_app.testing.azure_ml import MemoryJobs
from tests.support.world import ALL_SHARDS, TRAIN_SHARDS, VERSION, World, shard_content


def swept(world: World, times: int = 1) -> World:
    """A world after some sweeps, five minutes apart, with the queue served in between."""
    for _ in range(times):
        world.clock.move(minutes=5)
        sweep(world.services)
        world.serve_requests()
    return world


def test_uploads_whose_events_were_all_lost_are_found() -> None:
    """Storage is the truth."""
    world = World()
    for name in ALL_SHARDS:
        world.put(name)
    assert RunState.SUBMITTED == swept(world).only_run().state


def test_young_uploads_are_left_to_their_own_events() -> None:
    """They are on their way; judging twice costs twice."""
    world = World()
    world.put(TRAIN_SHARDS[0])
    world.clock.move(seconds=100)
    sweep(world.services)
    assert world.ledger.shard(VERSION, "train", 0) is None


def test_a_change_whose_event_was_lost_is_found() -> None:
    """The ETag in the ledger is not the one in the store."""
    world = World()
    world.upload_version()
    world.put(TRAIN_SHARDS[0], shard_content(5))
    swept(world)
    assert 2 == len(world.ledger.generation_rows)


def test_a_verdict_that_was_written_after_a_younger_closing_is_found() -> None:
    """A verdict is dated before it is written: its date alone does not tell whether the closing includes it."""
    world = World()
    world.upload_version()
    (key, row), *_ = world.ledger.shard_rows.items()
    earlier = row.validated_at - timedelta(minutes=1)
    world.ledger.shard_rows[key] = replace(row, crc32c="00000001", validated_at=earlier)
    swept(world)
    assert 2 == len(world.ledger.generation_rows)


def test_a_last_shard_whose_closing_was_missed_is_closed() -> None:
    """Its handler died right after the verdict was written."""
    world = World()
    world.upload_shards(*ALL_SHARDS)
    world.ledger.generation_rows.clear()
    world.requests.messages.clear()
    assert RunState.SUBMITTED == swept(world).only_run().state


def test_a_change_whose_closing_was_missed_is_closed() -> None:
    """The same for a later generation."""
    world = World()
    world.upload_version()
    world.deliver(world.put(TRAIN_SHARDS[0], shard_content(5)))
    del world.ledger.generation_rows[VERSION, 2]
    swept(world)
    assert 2 == len(world.ledger.generation_rows)


def test_a_closing_whose_request_was_lost_is_asked_for_again() -> None:
    """The claim, not the message, is what makes it one run."""
    world = World()
    world.upload_shards(*ALL_SHARDS)
    world.requests.messages.clear()
    assert RunState.SUBMITTED == swept(world, times=2).only_run().state


@pytest.mark.parametrize("state", [RunState.PLANNED, RunState.SUBMITTING])
def test_a_run_that_got_stuck_before_its_submission_is_submitted(state: RunState) -> None:
    """Under its own name, with its own spec."""
    world = World()
    run = world.upload_version()
    world.ledger.run_rows[run.run_id] = replace(run, state=state)
    assert RunState.SUBMITTED == swept(world).only_run().state


def test_a_run_whose_events_were_all_lost_is_finished() -> None:
    """Azure ML says nothing when a run is canceled, and its events are a preview."""
    world = World()
    run = world.upload_version()
    world.end_job(run)
    swept(world)
    assert (RunState.REGISTERED, 1) == (world.only_run().state, len(world.topic.received))


def test_a_sweep_over_what_is_well_changes_nothing() -> None:
    """No new line in any history, no new message."""
    world = World()
    run = world.upload_version()
    world.put("README.md", b"hello")
    world.deliver(world.put("train-00000-of-00009.tfrecord"))
    world.end_job(run)
    swept(world, times=2)
    before = {subject: len(lines) for subject, lines in world.ledger.history_rows.items()}
    swept(world, times=3)
    after = {subject: len(lines) for subject, lines in world.ledger.history_rows.items()}
    assert (before, 1, 1) == (after, len(world.jobs.submissions), len(world.models.registered))


class OneSilent(MemoryJobs):
    """A service that does not answer for one job."""

    silent: str = ""
    error: Exception

    def status(self, name: str) -> JobStatus | None:
        """Fail for the one."""
        if name == self.silent:
            raise self.error
        return super().status(name)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ServiceUnavailableError("look at job a: Azure ML did not answer"), "look at job a"),
        (TypeError("'NoneType' object is not subscriptable"), "TypeError: 'NoneType' object"),
    ],
)
def test_one_part_that_fails_holds_up_no_other(error: Exception, message: str) -> None:
    """The sweep does all it can, whatever the error is, and then says that it could not do everything."""
    jobs = OneSilent()
    jobs.error = error
    world = World(jobs=jobs)
    silent = world.upload_version()
    world.add_pipelines("letters")
    world.train(dataset="letters")
    for run in world.ledger.runs():
        world.end_job(run)
    jobs.silent = silent.run_id
    with pytest.raises(SweepError, match=f"1 part of the sweep failed; the first: {message}"):
        swept(world)
    states = {run.run_id == silent.run_id: run.state for run in world.ledger.runs()}
    assert {True: RunState.SUBMITTED, False: RunState.REGISTERED} == states


def test_versions_of_a_dataset_without_a_pipeline_are_left_alone() -> None:
    """No pipeline says any more what they need."""
    world = World()
    world.upload_shards(*TRAIN_SHARDS)
    world.services = replace(world.services, pipelines={})
    swept(world)
    assert [] == world.requests.messages
