"""Steps after a run's end: the next attempt, a hold on its data, the next run of the queue, notifications."""

from __future__ import annotations

import logging
from dataclasses import replace

from function_app.domain.errors import SubmissionRefusedError
from function_app.domain.failures import FailureClass, Remedy
from function_app.domain.records import DATA, PERSON, RunRecord
from function_app.domain.run_states import SETTLED, Actor, RunState
from function_app.notify.messages import notify_of_run
from function_app.ports import JobService
from function_app.runs.admission import awaits_attempt, hold_data, release
from function_app.runs.attempts import spent_cost, spent_node_hours, start_attempt
from function_app.runs.option_sweeps import go_on, has_ended, verdict_of
from function_app.runs.transitions import change_run
from function_app.services import RunServices
from function_app.telemetry import Span
from shared.traces import place_of_generation, place_of_run

logger = logging.getLogger(__name__)


def end_run(run: RunRecord, services: RunServices, *, by: Actor) -> RunRecord:
    """Do the steps after a run's end; repeating them changes nothing. A run that has not ended stays unchanged."""
    if run.state not in SETTLED or run.next_run_id is not None:
        return run
    if awaits_attempt(run) and services.outage(run.dataset_version.dataset):
        release(run, services, by=by)
        return run  # the attempt starts once the pipeline's file is corrected
    if awaits_attempt(run):
        run = start_attempt(run, services)
        if run.next_run_id is not None:
            _trace(run, services)
            return run
    if run.remedy == Remedy.QUARANTINE and run.notified_at is None:
        hold_data(run, services.ledger, services.history, services.clock())
    if run.state is RunState.LOST and run.notified_at is None:
        ask_cancel(run, services.jobs)  # an abandoned job must not keep training
    release(run, services, by=by)
    if not _is_notified(run, services):
        return run
    now = services.clock()
    if not run.is_overridden:  # its cost was measured when its job ended
        _trace(run, services)
    return change_run(services.ledger, run, lambda row: None if row.notified_at else replace(row, notified_at=now))


def _is_notified(run: RunRecord, services: RunServices) -> bool:
    """Notify people of a run's end; True if this is complete. A sweep's runs share one notification."""
    if run.notified_at is not None:
        return False
    if run.sweep_id is not None and not run.is_overridden:
        return go_on(run.sweep_id, services)
    return run.state is not RunState.SUPPRESSED and notify_of_run(run, services)


def obey_sweep(run: RunRecord, services: RunServices) -> RunRecord:
    """Cancel a run whose sweep was canceled, because the canceling handler may have died."""
    if run.sweep_id is None or run.cancel_requested_at is not None or has_ended(run):
        return run
    verdict = verdict_of(run.sweep_id, services.ledger)
    if verdict is None or not verdict.is_canceled:
        return run
    return mark_canceled(run, PERSON, verdict.reason, services)


def _trace(run: RunRecord, services: RunServices) -> None:
    """Trace an ended run as a whole; what was done for it is already below its place."""
    version = run.dataset_version
    span = Span(
        name="run",
        place=place_of_run(version, run.run_id),
        parent=place_of_generation(version, run.generation),
        started_at=run.created_at,
        ended_at=run.ended_at or run.state_since,
    )
    span.set(run_id=run.run_id, state=run.state, attempt=run.attempt, nodes=run.num_nodes, failure=run.failure_class)
    services.telemetry.ended(span)
    pipeline = services.pipelines.get(version.dataset)
    if pipeline is not None and run.submitted_at is not None:
        hours, cost = spent_node_hours([run]), spent_cost(pipeline, [run])
        services.telemetry.measure("landfall.node_hours", hours, dataset=version.dataset)
        services.telemetry.measure("landfall.cost", cost, dataset=version.dataset)


def ask_cancel(run: RunRecord, jobs: JobService) -> None:
    """Ask Azure ML to cancel a run's job; a job that has ended or is unknown stays as it is.

    Raises ServiceUnavailableError; the next check of the run tries again.
    """
    try:
        jobs.cancel(run.run_id)
    except SubmissionRefusedError as error:
        logger.warning(f"run {run.run_id}: {error}", extra={"action": "cancel_refused", "run_id": run.run_id})


def mark_canceled(run: RunRecord, canceled_by: str, reason: str, services: RunServices) -> RunRecord:
    """Record that a run is to be canceled, also in its history; repeating this changes nothing."""
    is_new, now = False, services.clock()

    def change(run: RunRecord) -> RunRecord | None:
        nonlocal is_new
        known = run.canceled_by in (PERSON, canceled_by)
        ended = run.state is RunState.COMPLETED or (run.state in SETTLED and not awaits_attempt(run))
        is_new = not (known or ended)
        if not is_new:
            return None
        run = replace(run, cancel_requested_at=now, canceled_by=canceled_by, cancel_reason=reason)
        if canceled_by == DATA:
            run = replace(run, failure_class=FailureClass.DATA_CHANGED, failure_evidence=reason)
        if run.state in SETTLED:
            return replace(run, remedy=Remedy.STOP, remedy_reason=reason)
        if run.state is not RunState.PLANNED:
            return run
        return replace(run, state=RunState.CANCELED, state_since=now, ended_at=now, reason=reason)

    run = change_run(services.ledger, run, change)
    if is_new:
        services.history.record(run.run_id, "cancel_requested", reason, canceled_by=canceled_by)
    return run
