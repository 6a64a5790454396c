"""What follows from a run's end: another attempt, or its place is given up and people are told."""

from __future__ import annotations

from function_app.failure_classes import Remedy
from function_app.ledger import SETTLED, RunRecord, RunState
from function_app.run_states import Actor
from function_app.steps.attempts import start_attempt
from function_app.steps.cancel_requests import ask_cancel
from function_app.steps.flights import awaits_attempt, land
from function_app.steps.quarantine import quarantine
from function_app.steps.run_notification import tell_about_run
from function_app.steps.services import Services


def end_run(run: RunRecord, services: Services, *, by: Actor) -> RunRecord:
    """Do what follows from a run's end; doing it again changes nothing. A run that has not ended stays as it is."""
    if run.state not in SETTLED or run.next_run_id is not None:
        return run
    if awaits_attempt(run):
        run = start_attempt(run, services)
        if run.next_run_id is not None:
            return run
    if run.remedy == Remedy.QUARANTINE and run.notified_at is None:
        quarantine(run, services)
    if run.state is RunState.LOST and run.notified_at is None:
        ask_cancel(run, services)  # what we have given up must not train after all, and nobody know of it
    land(run, services, by=by)
    return tell_about_run(run, services)
