"""Event Grid trigger: Azure ML says that some run of the workspace has changed."""

from __future__ import annotations

import re

from azure.functions import Blueprint, EventGridEvent

from function_app.bootstrap import services
from function_app.errors import InvalidEventError
from function_app.steps.run_events import handle_run_event

blueprint = Blueprint()

MAX_RUN_ID_CHARS = 300

_SUBJECT = re.compile(r"(?:.*/)?runs/(?P<run_id>[^/]{1,300})")


@blueprint.function_name("run_changed")
@blueprint.event_grid_trigger(arg_name="event")
def run_changed(event: EventGridEvent) -> None:
    """Look at the run that the event names; what the event says of its status is not believed."""
    handle_run_event(read_run_id(event.subject, event.get_json()), services())


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
