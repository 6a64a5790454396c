"""Submission: one closing, one job, under whatever repetition; and what is refused ends with its reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from function_app.config.pipelines import Attempts
from function_app.domain.capacity import Capacity
from function_app.domain.errors import NotFoundError, ServiceUnavailableError
from function_app.domain.events import TrainingRequest
from function_app.domain.jobs import JobAssets, JobSpec, JobStatus, LogPart, spec_from_json
from function_app.domain.run_states import RunState
from function_app.runs.requests import request_run
from function_app.runs.submission import handle_request
from function_app.sweep.sweep import sweep
from tests.crash.port_calls import PortCall, watched
from tests.support.world import ALL_SHARDS, TRAIN_SHARDS, VERSION, WORKSPACE, World, shard_content
from tests.unit.function_app.planning.worlds import planning_world

CLOSED = TrainingRequest(dataset_version=VERSION, generation=1, trigger="closed")
NO_QUOTA = "submit job: Azure ML refused it (400): the requested nodes exceed the quota of Standard_NC6s_v3"
OTHER_CLUSTER = "landfall-a100"
REQUESTS_BEFORE = 18
"""From the request for a training to the call of Azure ML."""


def test_a_closing_becomes_one_job() -> None:
    """Planned, submitted, and known by name."""
    world = World()
    run = world.upload_version()
    assert (RunState.SUBMITTED, [run.run_id], "closed") == (run.state, world.jobs.submissions, run.trigger)
    assert run.run_id == next(iter(world.ledger.generation_rows.values())).auto_run_id


def test_a_prediction_costs_two_requests_and_none_before_the_submission() -> None:
    """The last shard's way to the job is a second; manifest and earlier runs are read when the job is submitted."""
    world, called = planning_world(), list[str]()

    def note(made: PortCall, call: Callable[[], Any]) -> Any:
        called.append(made.method)
        return call()

    world.upload_shards(*ALL_SHARDS)
    world.services = watched(world.services, note)
    world.serve_requests()
    submitted = called.index("submit")
    assert {} != world.only_run().prediction
    assert REQUESTS_BEFORE >= submitted, called[:submitted]
    assert ["submit", "read", "runs", "save_run"] == called[submitted : submitted + 4]


def test_a_request_delivered_again_submits_nothing() -> None:
    """The result says why."""
    world = World()
    run = world.upload_version()
    handle_request(CLOSED, world.services)
    assert [run.run_id] == world.jobs.submissions
    assert "request_suppressed" == world.actions(run.run_id)[-1]


def test_a_deployment_between_two_deliveries_makes_no_second_run() -> None:
    """The closing has claimed its run by name; the stored spec is what is sent."""
    world = World()
    world.upload_shards(*ALL_SHARDS)
    world.services = replace(world.services, jobs=Unavailable())
    with pytest.raises(ServiceUnavailableError):
        handle_request(CLOSED, world.services)
    world.services = replace(world.services, jobs=world.jobs, workspace=replace(WORKSPACE, code_id="deployed-since"))
    world.serve_requests()
    run = world.only_run()
    assert (WORKSPACE.code_id, [run.run_id]) == (world.jobs.submitted[run.run_id].code_id, world.jobs.submissions)


def test_a_claim_whose_row_was_never_written_is_filled_in() -> None:
    """The claimer died between the two, and a deployment came in between; the name stands."""
    world = World()
    world.upload_shards(*ALL_SHARDS)
    generation = world.ledger.latest_generation(VERSION)
    assert generation is not None
    world.ledger.claim_auto_run(generation, "landfall-digits-v1-000000000000-a1")
    world.serve_requests()
    run = world.only_run()
    assert ("landfall-digits-v1-000000000000-a1", RunState.SUBMITTED) == (run.run_id, run.state)


def test_a_submission_under_way_is_left_to_its_handler_until_the_lease_runs_out() -> None:
    """After that the handler is dead, and another one sends exactly the recorded spec."""
    world = World()
    run = world.upload_version()
    lease = world.clock() + world.services.claim_lease
    world.ledger.run_rows[run.run_id] = replace(run, state=RunState.SUBMITTING, claimed_until=lease)
    handle_request(replace(CLOSED, run_id=run.run_id), world.services)
    assert [run.run_id] == world.jobs.submissions
    world.clock.move(minutes=4)
    handle_request(replace(CLOSED, run_id=run.run_id), world.services)
    assert [run.run_id, run.run_id] == world.jobs.submissions
    assert world.jobs.submitted == {run.run_id: spec_from_json(run.spec)}


def test_a_refused_submission_fails_with_the_services_words_and_recipients_are_notified() -> None:
    """Trying again would not help, so it ends here."""
    world = World()
    world.jobs.refusal = "there is no such cluster"
    run = world.upload_version()
    assert (RunState.FAILED, "there is no such cluster") == (run.state, run.reason)
    assert ("stop", "Azure ML refused the job, and would refuse it again") == (run.remedy, run.remedy_reason)
    assert ["failed", "failed"] == [n.outcome for n in (*world.topic.received, *world.people.received)]


def test_a_submission_refused_for_quota_is_tried_again_when_its_time_has_come() -> None:
    """Room comes back: the next attempt waits for it, under its own name, and the refusal is not notified."""
    world = World()
    world.jobs.refusal = NO_QUOTA
    second = world.train()
    first = world.ledger.run_rows[f"{second.logical_run}-a1"]
    assert ("no_capacity", "wait", RunState.PLANNED) == (first.failure_class, first.remedy, second.state)
    world.jobs.refusal = None
    world.clock.move(minutes=20)
    sweep(world.services)
    assert RunState.SUBMITTED == world.stands(second).state
    assert ([second.run_id], []) == (world.jobs.submissions, world.topic.received)


def test_refusals_for_quota_are_bounded_as_attempts_are_and_notified_once() -> None:
    """Each is an attempt; the last one's end is what people hear."""
    world = World()
    world.jobs.refusal = NO_QUOTA
    world.train()
    for _ in range(10):
        world.clock.move(minutes=20)
        sweep(world.services)
    last, *_ = world.ledger.runs()
    assert (3, RunState.FAILED, "3 of 3 attempts were made") == (last.attempt, last.state, last.remedy_reason)
    assert [(last.run_id, "failed")] == [(n.subject, n.outcome) for n in world.topic.received]


def test_a_submission_refused_for_quota_goes_to_the_next_size_first() -> None:
    """A job that found no capacity is handled in the same way."""
    world = World()
    world.change_pipeline(attempts=Attempts(other_clusters=(OTHER_CLUSTER,)))
    world.jobs.refusal = NO_QUOTA
    world.upload_shards(*ALL_SHARDS)
    handle_request(TrainingRequest.from_json(world.requests.messages.pop()), world.services)
    world.jobs.refusal = None
    world.serve_requests()
    run, *_ = world.ledger.runs()
    assert ("landfall-a100", RunState.SUBMITTED) == (run.spec["compute"], run.state)


def test_a_waiting_run_whose_data_are_held_does_not_start() -> None:
    """Another run has failed on the same data meanwhile; only a forced one starts."""
    world = World()
    first = world.upload_version()
    queued, _ = request_run(VERSION, {"epochs": 5}, trigger="http", services=world.services)
    forced, _ = request_run(VERSION, {}, trigger="http", services=world.services, forced_by="k")
    handle_request(replace(CLOSED, run_id=queued.run_id), world.services)
    world.requests.messages.clear()
    world.jobs.become(first.run_id, "Failed", error="exited with status code 10.")
    world.follow(first)
    world.serve_requests()
    stored = world.stands(queued)
    assert (RunState.SUPPRESSED, True) == (stored.state, f"run {first.run_id} failed on" in (stored.reason or ""))
    handle_request(replace(CLOSED, run_id=forced.run_id), world.services)
    assert RunState.SUBMITTED == world.stands(forced).state


def test_an_unavailable_service_leaves_the_run_to_the_next_delivery() -> None:
    """The message goes back to the queue."""
    world = World()
    world.upload_shards(*ALL_SHARDS)
    world.services = replace(world.services, jobs=Unavailable())
    with pytest.raises(ServiceUnavailableError):
        handle_request(CLOSED, world.services)
    assert RunState.SUBMITTING == world.only_run().state


def test_a_superseded_closing_starts_nothing() -> None:
    """The newer one has its own request, or its pipeline wants none."""
    world = World()
    world.upload_shards(*ALL_SHARDS)
    world.deliver(world.put(TRAIN_SHARDS[0], shard_content(5)))
    world.serve_requests()
    assert ([], "request_suppressed") == (world.ledger.runs(), world.actions(VERSION)[-1])


def test_a_dataset_without_a_pipeline_starts_nothing() -> None:
    """Its pipeline was taken away after the closing."""
    world = World()
    world.upload_shards(*ALL_SHARDS)
    world.services = replace(world.services, pipelines={})
    world.serve_requests()
    assert ([], "request_suppressed") == (world.ledger.runs(), world.actions(VERSION)[-1])


def test_a_request_that_makes_no_sense_ends_as_poison() -> None:
    """It raises, so that the queue gives it up and a person can look."""
    world = World()
    with pytest.raises(NotFoundError, match="never been complete"):
        handle_request(CLOSED, world.services)
    with pytest.raises(NotFoundError, match="not on record"):
        handle_request(replace(CLOSED, run_id="landfall-unknown-a1"), world.services)


class Unavailable:
    """A job service that does not answer."""

    def submit(self, spec: JobSpec) -> JobStatus:
        """Time out."""
        raise ServiceUnavailableError(f"submit job {spec.name}: Azure ML did not answer")

    def status(self, name: str) -> JobStatus | None:
        """Time out."""
        raise ServiceUnavailableError(f"look at job {name}: Azure ML did not answer")

    def cancel(self, name: str) -> None:
        """Time out."""
        raise ServiceUnavailableError(f"cancel job {name}: Azure ML did not answer")

    def ours(self) -> list[JobStatus]:
        """Time out."""
        raise ServiceUnavailableError("list the jobs of the workspace: Azure ML did not answer")

    def assets(self, spec: JobSpec) -> JobAssets:
        """Time out."""
        raise ServiceUnavailableError(f"look at the assets of job {spec.name}: Azure ML did not answer")

    def has_compute(self, name: str) -> bool:
        """Time out."""
        raise ServiceUnavailableError(f"look at compute {name}: Azure ML did not answer")

    def capacity(self) -> Capacity:
        """Time out."""
        raise ServiceUnavailableError("list the clusters of the workspace: Azure ML did not answer")

    def log_tail(self, name: str, *, max_bytes: int) -> str | None:
        """Time out."""
        raise ServiceUnavailableError(f"read {max_bytes} of the log of job {name}: Azure ML did not answer")

    def log_part(self, name: str, *, rank: int, after: int | None, max_bytes: int) -> LogPart | None:
        """Time out."""
        raise ServiceUnavailableError(f"read {(rank, after, max_bytes)} of job {name}: Azure ML did not answer")

    def logged_metrics(self, name: str) -> Mapping[str, float]:
        """Time out."""
        raise ServiceUnavailableError(f"read the MLflow run of job {name}: Azure ML did not answer")
