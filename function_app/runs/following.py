"""Follow a run to its end: events only name the run; its state comes from Azure ML."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from function_app.domain.failures import FailureClass, brief_reason
from function_app.domain.jobs import PREFIX, JobStatus
from function_app.domain.records import DATA, RunRecord
from function_app.domain.run_states import Actor, RunState
from function_app.ingest.stored_shards import written_since_submission
from function_app.notify.messages import notify_of_progress
from function_app.notify.outbox import deliver
from function_app.ports import JobService
from function_app.runs.admission import release
from function_app.runs.attempts import JobLog, changed_data_members, failure_members, record_remedy
from function_app.runs.ending import ask_cancel, end_run, mark_canceled, obey_sweep
from function_app.runs.option_sweeps import settle_in_sweep
from function_app.runs.registration import settle_completed
from function_app.runs.transitions import move_run
from function_app.services import RunServices
from shared.errors import LandfallError
from shared.safe_text import one_line
from shared.traces import place_of_run

logger = logging.getLogger(__name__)

LOST_AFTER = timedelta(minutes=15)
"""Azure ML knows a job as soon as it has answered the PUT; this allows for a regional failover of its index."""
MAX_LOG_TAIL_BYTES = 16 << 10
MAX_LOG_PROBLEM_CHARS = 500
OTHERS_EVENTS = "run_events_of_other_projects"
"""The daily counter of events about other projects' runs."""

FOLLOWED = frozenset({RunState.SUBMITTED, RunState.QUEUED, RunState.RUNNING})
"""States in which Azure ML decides what comes next."""

STATES: Mapping[str, RunState] = {
    "Provisioning": RunState.QUEUED,
    "Preparing": RunState.QUEUED,
    "Queued": RunState.QUEUED,
    "Running": RunState.RUNNING,
    "Finalizing": RunState.RUNNING,
    "Completed": RunState.COMPLETED,
    "Failed": RunState.FAILED,
    "Canceled": RunState.CANCELED,
}
"""Azure ML's status → state. Every other status (NotStarted, Starting, CancelRequested, NotResponding, Paused,
Unknown and any future one) changes nothing; the next check decides.
"""
ENDS = frozenset({RunState.COMPLETED, RunState.FAILED, RunState.CANCELED})
CANCELABLE = frozenset({None, RunState.QUEUED, RunState.RUNNING})
"""What the status of a job that has not ended may mean; None stands for a status that changes nothing."""


def handle_run_event(run_id: str, services: RunServices) -> None:
    """Follow the run that an event names; an event that changes nothing is recorded with its reason."""
    if not run_id.startswith(PREFIX):
        services.ledger.count(OTHERS_EVENTS, f"{services.clock():%Y-%m-%d}")
        logger.info(f"run {run_id[:100]} belongs to another project", extra={"action": "foreign_run_event"})
        return
    run = services.ledger.run(run_id)
    if run is None:
        services.history.record(run_id[:255], "event_suppressed", "the event names a run that is not on record")
        return
    with services.telemetry.span("run event", place_of_run(run.dataset_version, run_id), run_id=run_id) as span:
        followed = follow_run(run, services)
        if span is not None:
            span.set(state_before=run.state, state=followed.state)
        if followed.state is run.state and followed.notified_at == run.notified_at:
            reason = f"the event changes nothing: the run is already {run.state}"
            services.history.record(run_id, "event_suppressed", reason)


def follow_run(run: RunRecord, services: RunServices, *, by: Actor = Actor.RECONCILIATION) -> RunRecord:
    """Update a run from Azure ML, and do the steps after its end."""
    run = obey_sweep(run, services)
    if run.state in FOLLOWED:
        run = _look(run, services, by)
    if run.state is RunState.COMPLETED and not services.outage(run.dataset_version.dataset):
        run = settle_completed(run, services, by=by) if run.sweep_id is None else settle_in_sweep(run, services)
    return end_run(run, services, by=by)


def _look(run: RunRecord, services: RunServices, by: Actor) -> RunRecord:
    status = services.jobs.status(run.run_id)
    if status is None:
        return _unknown_job(run, services, by)
    target = STATES.get(status.status)
    if run.cancel_requested_at is not None and target in CANCELABLE:
        ask_cancel(run, services.jobs)  # the first request may have died before the call, or its answer was lost
    if target is None or target is run.state:
        return run
    if target in ENDS and services.outage(run.dataset_version.dataset):
        release(run, services, by=by)  # its pipeline, once it is corrected, decides what follows from the end
        return run
    if target is RunState.CANCELED and run.cancel_requested_at is None:
        # A cancellation is recorded before Azure ML is asked to cancel, so reading the row again finds it.
        run = services.ledger.run(run.run_id) or run
    if target is RunState.RUNNING:
        run = _unless_changed(
            run, services
        )  # before the transition, because a handler that finds the run running does not cancel it again
        is_fresh = notify_of_progress(run, "run_started", services)
        run = _moved(run, target, _members(run, target, status, services), services, by)
        if is_fresh:
            deliver(run.run_id, services)
        return run
    return _moved(run, target, _members(run, target, status, services), services, by)


def _unless_changed(run: RunRecord, services: RunServices) -> RunRecord:
    """Cancel a run whose data changed before it started: its model could not be registered."""
    changed = written_since_submission(run, services)
    if changed is None:
        return run
    run = mark_canceled(run, DATA, f"its data changed before it started: {changed}", services)
    ask_cancel(run, services.jobs)
    return run


def _unknown_job(run: RunRecord, services: RunServices, by: Actor) -> RunRecord:
    now = services.clock()
    since = run.submitted_at or run.state_since
    if now - since < LOST_AFTER:
        return run
    reason = (
        f"Azure ML does not know the job, which was submitted at {since.isoformat(timespec='seconds')}; its result "
        f"is unknown. To train again: landfall submit {run.dataset_version} --force"
    )
    return _moved(run, RunState.LOST, {"ended_at": now, "reason": reason}, services, by)


def _members(run: RunRecord, target: RunState, status: JobStatus, services: RunServices) -> dict[str, Any]:
    """Return what a run's row keeps of a job's status."""
    now = services.clock()
    if run.canceled_by == DATA and target in (RunState.FAILED, RunState.CANCELED):
        found = changed_data_members(run, str(run.cancel_reason), services)
        return {"ended_at": now, "reason": run.cancel_reason, **found}
    if target is RunState.FAILED:
        return {"ended_at": now, **_failure(run, status, services)}
    if target is RunState.CANCELED:
        unasked = status.error or "canceled in Azure ML, by a person or by the job's time limit"
        found = {} if run.cancel_requested_at else failure_members(run, status, JobLog(), services)
        return {"ended_at": now, "reason": run.cancel_reason or unasked, **found}
    if target is RunState.RUNNING:
        return {"started_at": now}
    if target is RunState.COMPLETED:
        return {"ended_at": now, **_changed_data(run, services)}
    return {}


def _failure(run: RunRecord, status: JobStatus, services: RunServices) -> dict[str, Any]:
    """Return the row's members for a failed job. If shards changed in the meantime, they count as the cause.

    Another attempt could not use the changed shards, and the failure is the fault of neither the script nor the
    accepted data.
    """
    log = _log(status.name, services.jobs)
    reason = brief_reason(status.error, log.tail)
    if log.problem:
        reason = f"{reason} Its log could not be read: {log.problem}"
    changed = written_since_submission(run, services)
    if changed is None:
        return {"reason": reason, "log_tail": log.tail, **failure_members(run, status, log, services)}
    reason = f"its data changed before it ended: {changed}; the job says: {reason}"
    return {"reason": reason, "log_tail": log.tail, **changed_data_members(run, changed, services)}


def _changed_data(run: RunRecord, services: RunServices) -> dict[str, Any]:
    """Return the row's members for shards that were written while the run trained."""
    changed = written_since_submission(run, services)
    return {} if changed is None else {"failure_class": FailureClass.DATA_CHANGED, "failure_evidence": changed}


def _log(run_id: str, jobs: JobService) -> JobLog:
    """Return the end of the log. A log that cannot be read does not keep the run from ending."""
    try:
        return JobLog(tail=jobs.log_tail(run_id, max_bytes=MAX_LOG_TAIL_BYTES))
    except LandfallError as error:
        logger.warning(f"run {run_id}: its log could not be read: {error}", extra={"run_id": run_id})
        return JobLog(problem=one_line(str(error))[:MAX_LOG_PROBLEM_CHARS])


def _moved(
    run: RunRecord, target: RunState, members: Mapping[str, Any], services: RunServices, by: Actor
) -> RunRecord:
    run, moved = move_run(services.ledger, run, target, by=by, now=services.clock(), **members)
    if moved:
        services.history.record(run.run_id, f"run_{run.state}", run.reason or f"Azure ML says: {target}", by=by)
        record_remedy(run, services.history)
    return run
