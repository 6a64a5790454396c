"""An event about some run: ours is looked at, others are acknowledged, counted and dropped."""

from __future__ import annotations

import logging
import re

from function_app.errors import InvalidEventError
from function_app.steps.planning import PREFIX
from function_app.steps.reconciliation import reconcile_run
from function_app.steps.services import Services

logger = logging.getLogger(__name__)

MAX_RUN_ID_CHARS = 300
OTHERS_EVENTS = "run_events_of_other_projects"
"""The counter of what is not ours, by day: one row a day, however busy the workspace is."""

_SUBJECT = re.compile(r"(?:.*/)?runs/(?P<run_id>[^/]{1,300})")


def handle_run_event(run_id: str, services: Services) -> None:
    """Reconcile the run if it is on record; what an event did not change is told too."""
    if not run_id.startswith(PREFIX):
        services.ledger.count(OTHERS_EVENTS, f"{services.clock():%Y-%m-%d}")
        logger.info(f"run {run_id[:100]} is of another project", extra={"action": "foreign_run_event"})
        return
    before = services.ledger.run(run_id)
    run = reconcile_run(run_id, services)
    if run is None:
        services.decide(run_id[:255], "event_suppressed", "the event names a run that is not on record")
    elif before is not None and before.state is run.state and before.notified_at == run.notified_at:
        services.decide(run_id, "event_suppressed", f"the event brings nothing new: the run is {run.state} already")


def read_run_id(subject: str | None, data: object) -> str:
    """Return the run's id. Raises InvalidEventError.

    All other fields may be null, or beside ``data`` instead of in it, so none is read.
    """
    stated = data.get("runId") if isinstance(data, dict) else None
    if isinstance(stated, str) and 0 < len(stated) <= MAX_RUN_ID_CHARS:
        return stated
    match = _SUBJECT.fullmatch(subject or "")
    if match is None:
        raise InvalidEventError(
            f"run event should name its run in data.runId or the subject, was {str(subject)[:200]!r}"
        )
    return match["run_id"]
