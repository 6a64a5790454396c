"""What follows from a run's end: the next attempt, a hold on its data, the next run of the queue, notifications."""

from __future__ import annotations

import logging
from dataclasses import replace

from function_app.domain.errors import SubmissionRefusedError
from function_app.domain.failures import Remedy
from function_app.domain.records import RunRecord
from function_app.domain.run_states import SETTLED, Actor, RunState
from function_app.notify.messages import notify_of_run
from function_app.ports import JobService
from function_app.runs.admission import awaits_attempt, hold_data, release
from function_app.runs.attempts import start_attempt
from function_app.runs.transitions import change_run
from function_app.services import RunServices

logger = logging.getLogger(__name__)


def end_run(run: RunRecord, services: RunServices, *, by: Actor) -> RunRecord:
    """Do what follows from a run's end; repeating it changes nothing. A run that has not ended stays as it is."""
    if run.state not in SETTLED or run.next_run_id is not None:
        return run
    if awaits_attempt(run) and services.outage(run.dataset_version.dataset):
        release(run, services, by=by)
        return run  # the attempt starts once the pipeline's file is mended
    if awaits_attempt(run):
        run = start_attempt(run, services)
        if run.next_run_id is not None:
            return run
    if run.remedy == Remedy.QUARANTINE and run.notified_at is None:
        hold_data(run, services.ledger, services.history, services.clock())
    if run.state is RunState.LOST and run.notified_at is None:
        ask_cancel(run, services.jobs)  # a job that is given up must not train on unseen
    release(run, services, by=by)
    if run.state is RunState.SUPPRESSED or run.notified_at is not None or not notify_of_run(run, services):
        return run
    now = services.clock()
    return change_run(services.ledger, run, lambda row: None if row.notified_at else replace(row, notified_at=now))


def ask_cancel(run: RunRecord, jobs: JobService) -> None:
    """Ask Azure ML to cancel a run's job; a job that has ended or is unknown stays as it is.

    Raises ServiceUnavailableError: the next look at the run asks again.
    """
    try:
        jobs.cancel(run.run_id)
    except SubmissionRefusedError as error:
        logger.warning(f"run {run.run_id}: {error}", extra={"action": "cancel_refused", "run_id": run.run_id})
