"""An event about some run: ours is looked at, others are acknowledged, counted and dropped."""

from __future__ import annotations

import logging

from function_app.steps.planning import PREFIX
from function_app.steps.reconciliation import reconcile_run
from function_app.steps.services import Services

logger = logging.getLogger(__name__)


def handle_run_event(run_id: str, services: Services) -> None:
    """Reconcile the run if it is on record.

    Runs of other projects of the workspace are counted in the log only: there is no bound on how many there are.
    """
    if not run_id.startswith(PREFIX):
        logger.info(f"run {run_id[:100]} is of another project", extra={"action": "foreign_run_event"})
    elif reconcile_run(run_id, services) is None:
        services.decide(run_id[:255], "event_suppressed", "the event names a run that is not on record")
