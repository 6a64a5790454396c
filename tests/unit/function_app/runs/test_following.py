"""Following runs: Azure ML's status counts, and ends are final."""

from __future__ import annotations

from dataclasses import replace

import pytest

from function_app.domain.errors import ServiceUnavailableError
from function_app.domain.records import RunRecord
from function_app.domain.run_states import Actor, RunState
from function_app.runs.following import handle_run_event
from function_app.runs.transitions import move_run
from function_app.testing.azure_ml import MemoryJobs
from function_app.testing.ledger import MemoryLedger
from tests.support.world import World, ended_run
from tests.unit.function_app.runs.test_submission import Unavailable


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("NotStarted", RunState.SUBMITTED),
        ("Starting", RunState.SUBMITTED),
        ("Provisioning", RunState.QUEUED),
        ("Preparing", RunState.QUEUED),
        ("Queued", RunState.QUEUED),
        ("Running", RunState.RUNNING),
        ("Finalizing", RunState.RUNNING),
        ("CancelRequested", RunState.SUBMITTED),
        ("NotResponding", RunState.SUBMITTED),
        ("Paused", RunState.SUBMITTED),
        ("Unknown", RunState.SUBMITTED),
        ("InventedTomorrow", RunState.SUBMITTED),
    ],
)
def test_a_status_leads_to_its_state_or_changes_nothing(status: str, state: RunState) -> None:
    """Words that say nothing about progress leave the run as it was."""
    world = World()
    run = world.upload_version()
    world.jobs.become(run.run_id, status)
    assert state == world.follow(run).state


def test_a_run_never_goes_back() -> None:
    """After NotResponding a job may report an earlier status: ours stays."""
    world = World()
    run = world.upload_version()
    world.jobs.become(run.run_id, "Running")
    world.follow(run)
    world.jobs.become(run.run_id, "Queued")
    assert RunState.RUNNING == world.follow(run).state


def test_a_failed_run_keeps_error_and_log_tail_and_tells_people() -> None:
    """What a person starts from."""
    world = World()
    run = world.upload_version()
    world.jobs.logs[run.run_id] = "Traceback …\nValueError: no\n"
    world.jobs.become(run.run_id, "Failed", error="exit status 1")
    found = world.follow(run)
    assert (RunState.FAILED, "exit status 1 The log ends with: ValueError: no", "Traceback …\nValueError: no\n") == (
        found.state,
        found.reason,
        found.log_tail,
    )
    assert ({}, "ValueError: no" in str(world.people.received[0].content["log_tail"])) == (
        world.models.registered,
        True,
    )


class Silent(MemoryJobs):
    """A service that gives the status and no log."""

    def log_tail(self, name: str, *, max_bytes: int) -> str | None:
        """Time out."""
        raise ServiceUnavailableError(f"read {max_bytes} of the log of job {name}: Azure ML did not answer")


def test_a_log_that_cannot_be_read_holds_up_no_end() -> None:
    """The run has failed whether its log can be had or not."""
    world = World(jobs=Silent())
    run = world.upload_version()
    world.jobs.become(run.run_id, "Failed")
    found = world.follow(run)
    assert (RunState.FAILED, None) == (found.state, found.log_tail)


def test_a_canceled_run_ends_canceled() -> None:
    """Nothing follows by itself."""
    world, run = ended_run("Canceled")
    assert (RunState.CANCELED, ["canceled"]) == (run.state, [n.outcome for n in world.topic.received])


def test_a_job_that_azure_ml_does_not_know_is_lost_after_a_while() -> None:
    """Right after the submission it may not be known yet."""
    world = World()
    run = world.upload_version()
    world.jobs.forget(run.run_id)
    assert RunState.SUBMITTED == world.follow(run).state
    world.clock.move(minutes=16)
    found = world.follow(run)
    assert RunState.LOST == found.state
    assert "does not know the job, which was submitted at 2026-11-20T12:00:00+00:00" in (found.reason or "")


def test_a_service_that_does_not_answer_leaves_everything_as_it_is() -> None:
    """The next look will tell."""
    world = World()
    run = world.upload_version()
    world.services = replace(world.services, jobs=Unavailable())
    with pytest.raises(ServiceUnavailableError):
        world.follow(run)
    assert RunState.SUBMITTED == world.only_run().state


def test_an_illegal_move_changes_nothing() -> None:
    """A settled run stays settled, whatever event comes late."""
    world, run = ended_run()
    found, moved = move_run(world.ledger, run, RunState.RUNNING, by=Actor.RECONCILIATION, now=world.clock())
    assert (False, RunState.REGISTERED) == (moved, found.state)


def test_an_event_of_our_run_has_it_looked_at() -> None:
    """Whatever the event says, Azure ML is asked."""
    world = World()
    run = world.upload_version()
    world.end_job(run)
    handle_run_event(run.run_id, world.services)
    assert RunState.REGISTERED == world.only_run().state


def test_an_event_of_another_project_leaves_no_trace_in_the_ledger() -> None:
    """A subscription covers the whole workspace: there is no bound on how many of them come."""
    world = World()
    handle_run_event("calm_river_x1b2", world.services)
    assert {} == world.ledger.history_rows


def test_an_event_of_a_run_that_looks_like_ours_is_suppressed_with_its_reason() -> None:
    """It may have been submitted by hand, or a ledger was lost."""
    world = World()
    handle_run_event("landfall-digits-v1-000000000000-a1", world.services)
    assert ["event_suppressed"] == world.actions("landfall-digits-v1-000000000000-a1")


class CountingLedger(MemoryLedger):
    """Notes every read of a run's row, and the state and the members that each write changed."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []
        self.writes: list[str] = []

    def run(self, run_id: str) -> RunRecord | None:
        """Read a run's row."""
        self.reads.append(run_id)
        return super().run(run_id)

    def save_run(self, run: RunRecord) -> RunRecord:
        """Write a run's row."""
        before = self.run_rows[run.run_id]
        marked = "notified" if run.notified_at else "continued"
        self.writes.append(f"{before.state} → {run.state}" if before.state is not run.state else marked)
        return super().save_run(run)


@pytest.mark.parametrize(
    ("status", "metric", "writes"),
    [
        ("Running", 0.0, ["submitted → running"]),
        ("Completed", 0.97, ["submitted → completed", "completed → registered", "notified"]),
        ("Completed", 0.5, ["submitted → completed", "completed → not_registered", "notified"]),
        ("Canceled", 0.0, ["submitted → canceled", "notified"]),
        ("Starting", 0.0, []),
    ],
)
def test_a_run_event_reads_the_run_once_and_writes_it_once_per_transition(
    status: str, metric: float, writes: list[str]
) -> None:
    """A completion has two transitions: its job has ended, and the gate has decided; then its people are notified.

    Where a job was canceled and no cancellation is on record, the row is read again: one may have come meanwhile.
    """
    ledger = CountingLedger()
    world = World(ledger=ledger)
    run = world.upload_version()
    world.end_job(run, status, val_accuracy=metric)
    ledger.reads.clear()
    ledger.writes.clear()
    handle_run_event(run.run_id, world.services)
    num_reads = 2 if status == "Canceled" else 1
    assert ([run.run_id] * num_reads, writes) == (ledger.reads, ledger.writes)


def test_a_run_event_that_leads_to_another_attempt_reads_the_run_once() -> None:
    """One write for the failure, one that adds the attempt; no row is read again to see what was written."""
    ledger = CountingLedger()
    world = World(ledger=ledger)
    run = world.upload_version()
    world.jobs.become(run.run_id, "Failed", error="The job was preempted")
    ledger.reads.clear()
    ledger.writes.clear()
    handle_run_event(run.run_id, world.services)
    assert ([run.run_id], ["submitted → failed", "continued"], 2) == (
        ledger.reads,
        ledger.writes,
        world.ledger.runs()[0].attempt,
    )
