"""Canceling: in every state, once for people, and nothing follows by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from function_app.domain.errors import NotFoundError, RunEndedError, ServiceUnavailableError
from function_app.domain.jobs import JobSpec, JobStatus
from function_app.domain.records import PERSON, RunRecord
from function_app.domain.run_states import RunState
from function_app.runs.cancellation import cancel_run
from function_app.runs.ending import mark_canceled
from function_app.runs.requests import request_run
from function_app.runs.submission import submit_run
from function_app.sweep.sweep import sweep
from function_app.testing.azure_ml import MemoryJobs
from tests.support.world import ALL_SHARDS, VERSION, World

REASON = "canceled by a person over the API"


def canceled(world: World, run: RunRecord) -> RunRecord:
    """The run after a person has canceled it."""
    return cancel_run(run.run_id, canceled_by=PERSON, reason=REASON, services=world.services)


def latest_world() -> World:
    """A world whose pipeline keeps only the newest version that waits."""
    world = World()
    world.change_pipeline(when_busy="latest")
    return world


class SlowJobs(MemoryJobs):
    """A service that takes its time to end a job."""

    asked: int = 0

    def cancel(self, name: str) -> None:
        """Take note."""
        self.asked += 1
        if self.statuses[name].status not in ("Completed", "Canceled"):
            self.become(name, "CancelRequested")


def outcomes(world: World) -> list[tuple[str, str]]:
    """Return what the topic received."""
    return [(n.subject, n.outcome) for n in world.topic.received]


@pytest.mark.parametrize("status", ["NotStarted", "Queued", "Running"])
def test_a_run_that_azure_ml_has_ends_canceled_when_its_job_has(status: str) -> None:
    """Submitted, queued or running: asked once, notified once, however often it is repeated."""
    world = World()
    run = world.upload_version()
    world.jobs.become(run.run_id, status)
    world.follow(run)
    for _ in range(3):
        found = canceled(world, run)
    assert (RunState.CANCELED, REASON, [(run.run_id, "canceled")]) == (found.state, found.reason, outcomes(world))
    assert 1 == world.actions(run.run_id).count("cancel_requested")


class CanceledWhileAsked(MemoryJobs):
    """A service that is asked for a job's status, and before it answers a person cancels the run."""

    world: World | None = None

    def status(self, name: str) -> JobStatus | None:
        """See JobService."""
        world, self.world = self.world, None
        if world is not None:
            mark_canceled(world.only_run(), PERSON, REASON, world.services)
            self.cancel(name)
        return super().status(name)


def test_who_looks_while_a_person_cancels_gives_the_person_s_reason() -> None:
    """The row was read before the cancellation, the job's status after it."""
    world = World()
    jobs = CanceledWhileAsked()
    world.jobs, world.services = jobs, replace(world.services, jobs=jobs)
    run = world.upload_version()
    jobs.become(run.run_id, "Running")
    world.follow(run)
    jobs.world = world
    found = world.follow(run)
    assert (RunState.CANCELED, REASON, None) == (found.state, found.reason, found.failure_class)


def test_a_planned_run_is_canceled_without_a_word_to_azure_ml() -> None:
    """There is no job; the message that is still in the queue starts none."""
    world = World()
    world.upload_shards(*ALL_SHARDS)
    run, _ = request_run(VERSION, {"epochs": 5}, trigger="http", services=world.services)
    assert RunState.CANCELED == canceled(world, run).state
    world.requests.messages.pop(0)  # of the closing
    world.serve_requests()
    assert ([], [(run.run_id, "canceled")]) == (world.jobs.submissions, outcomes(world))


def test_a_run_that_is_being_submitted_is_canceled_right_after() -> None:
    """The request comes while the job is being submitted: the submitting handler cancels it."""
    world = World()

    class CanceledMeanwhile(MemoryJobs):
        def submit(self, spec: JobSpec) -> JobStatus:
            assert RunState.SUBMITTING == canceled(world, world.only_run()).state
            return super().submit(spec)

    world.services = replace(world.services, jobs=CanceledMeanwhile())
    run = world.upload_version()
    found = world.follow(run)
    assert found is not None
    assert (RunState.CANCELED, REASON) == (found.state, found.reason)


@pytest.mark.parametrize("arrived", [True, False])
def test_a_submission_that_was_abandoned_and_canceled_sends_no_job(*, arrived: bool) -> None:
    """The handler died before or behind the call; the sweep finds out which, and the run ends canceled."""
    world = World()
    run = world.upload_version()
    if not arrived:
        world.jobs.forget(run.run_id)
    world.ledger.run_rows[run.run_id] = replace(run, state=RunState.SUBMITTING)
    canceled(world, run)
    for _ in range(2):
        world.clock.move(minutes=5)
        sweep(world.services)
    assert (RunState.CANCELED, 1 + arrived) == (world.stands(run).state, len(world.jobs.submissions))


def test_a_cancellation_is_asked_for_again_until_the_job_has_ended() -> None:
    """The first call may have been lost."""
    jobs = SlowJobs()
    world = World(jobs=jobs)
    run = world.upload_version()
    assert RunState.SUBMITTED == canceled(world, run).state
    world.jobs.become(run.run_id, "Running")
    world.follow(run)
    assert jobs.asked >= 2
    assert RunState.CANCELED == world.finish(run, "Canceled").state


def test_a_service_that_does_not_answer_leaves_the_cancellation_on_record() -> None:
    """The answer says to try again; the sweep does so anyway."""
    world = World()
    run = world.upload_version()

    class Unavailable(MemoryJobs):
        def cancel(self, name: str) -> None:
            raise ServiceUnavailableError(f"cancel job {name}: Azure ML did not answer")

    world.services = replace(world.services, jobs=Unavailable(statuses=world.jobs.statuses))
    with pytest.raises(ServiceUnavailableError):
        canceled(world, run)
    world.services = replace(world.services, jobs=world.jobs)
    for _ in range(2):
        sweep(world.services)
    assert RunState.CANCELED == world.stands(run).state


def test_a_job_that_completes_before_the_cancellation_reaches_it_registers_nothing() -> None:
    """A person said that it should end; the run ends canceled and says how its job ended."""
    world = World(jobs=SlowJobs())
    run = world.upload_version()
    canceled(world, run)
    found = world.finish(run)
    assert (RunState.CANCELED, f"{REASON} (the job itself: completed)", {}) == (
        found.state,
        found.reason,
        world.models.registered,
    )


def test_what_waits_for_a_run_that_a_person_cancels_is_dropped() -> None:
    """No follow-up starts by itself where only the latest version counts; it says why."""
    world = latest_world()
    first = world.train()
    queued = world.train(version="v2")
    canceled(world, first)
    for _ in range(2):
        world.clock.move(minutes=5)
        sweep(world.services)
        world.serve_requests()
    run = world.stands(queued)
    assert (RunState.SUPPRESSED, f"a person canceled the run that it waited for: {first.run_id}") == (
        run.state,
        run.reason,
    )
    assert [first.run_id] == world.jobs.submissions
    assert [
        ("digits/v2", "version_waiting"),
        ("digits/v2", "version_dropped"),
        (first.run_id, "canceled"),
    ] == outcomes(world)


def test_what_waits_is_dropped_too_where_another_attempt_was_canceled() -> None:
    """The job had failed, and who planned its next attempt had died: the run stays failed, and nothing follows."""
    world = latest_world()
    first, queued = world.train(), world.train(version="v2")
    failed = replace(world.stands(first), state=RunState.FAILED, ended_at=world.clock(), remedy="resume")
    world.ledger.run_rows[first.run_id] = failed
    canceled(world, first)
    world.serve_requests()
    assert (RunState.FAILED, RunState.SUPPRESSED) == (world.stands(first).state, world.stands(queued).state)
    assert ([first.run_id], (first.run_id, "failed")) == (world.jobs.submissions, outcomes(world)[-1])


def test_what_is_asked_for_after_the_cancellation_starts_when_the_job_has_ended() -> None:
    """The later request is a separate decision."""
    world = World(jobs=SlowJobs())
    first = world.train()
    canceled(world, first)
    later, _ = request_run(VERSION, {"epochs": 5}, trigger="http", services=world.services)
    world.serve_requests()
    world.finish(first, "Canceled")
    assert RunState.SUBMITTED == world.stands(later).state


def test_an_admitted_run_can_be_canceled_and_the_active_run_is_left_alone() -> None:
    """It is notified, because a person asked for it by name."""
    world = World()
    first = world.train()
    queued = world.train(version="v2")
    assert RunState.CANCELED == canceled(world, queued).state
    assert (RunState.SUBMITTED, (), (queued.run_id, "canceled")) == (
        world.stands(first).state,
        world.ledger.queue.queued,
        outcomes(world)[-1],
    )


def test_a_run_that_has_ended_otherwise_cannot_be_canceled() -> None:
    """Nothing is changed, and the caller learns how it ended."""
    world = World()
    run = world.finish(world.upload_version())
    with pytest.raises(RunEndedError, match="cannot be canceled: it is registered"):
        canceled(world, run)
    assert run == world.stands(run)


def test_a_run_that_is_not_on_record_cannot_be_canceled() -> None:
    """Names are not made up."""
    with pytest.raises(NotFoundError):
        cancel_run("landfall-unknown-a1", canceled_by=PERSON, reason=REASON, services=World().services)


def test_a_canceled_run_is_not_submitted_by_a_handler_that_read_it_before() -> None:
    """The claim looks at the row, not at what was read."""
    world = World()
    world.upload_shards(*ALL_SHARDS)
    run, _ = request_run(VERSION, {}, trigger="http", services=world.services)
    canceled(world, run)
    assert (RunState.CANCELED, []) == (submit_run(run, world.services).state, world.jobs.submissions)
    assert () == world.ledger.queue.running
