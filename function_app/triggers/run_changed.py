"""Event Grid trigger: Azure ML says that some run of the workspace has changed."""

from __future__ import annotations

from azure.functions import Blueprint, EventGridEvent

from function_app.bootstrap import services
from function_app.dead_letters import RUN_CHANGED

blueprint = Blueprint()


@blueprint.function_name("run_changed")
@blueprint.event_grid_trigger(arg_name="event")
def run_changed(event: EventGridEvent) -> None:
    """Look at the run that the event names; what the event says of its status is not believed."""
    from function_app.steps.message_failures import failures_on_record
    from function_app.steps.run_events import handle_run_event, read_run_id

    with failures_on_record(RUN_CHANGED, event.id, services()):
        handle_run_event(read_run_id(event.subject, event.get_json()), services())
