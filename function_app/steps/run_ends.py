"""What follows from a run's end: another attempt, or its place is given up and people are told."""

from __future__ import annotations

from function_app.ledger import SETTLED, RunRecord
from function_app.run_states import Actor
from function_app.steps.flights import land
from function_app.steps.run_notification import tell_about_run
from function_app.steps.services import Services


def end_run(run: RunRecord, services: Services, *, by: Actor) -> RunRecord:
    """Do what follows from a run's end; doing it again changes nothing. A run that has not ended stays as it is."""
    if run.state not in SETTLED or run.next_run_id is not None:
        return run
    land(run, services, by=by)
    return tell_about_run(run, services)
