"""Queue ``training-requested``: a closing, or somebody, wants a run."""

from __future__ import annotations

from azure.functions import Blueprint, QueueMessage

from function_app.bootstrap import services
from function_app.dead_letters import TRAINING_REQUESTED

blueprint = Blueprint()


@blueprint.function_name("training_requested")
@blueprint.queue_trigger(arg_name="message", queue_name="training-requested", connection="AzureWebJobsStorage")
def training_requested(message: QueueMessage) -> None:
    """Submit the run that a message asks for."""
    from function_app.ports import TrainingRequest
    from function_app.steps.message_failures import failures_on_record
    from function_app.steps.submission import handle_request

    body = message.get_body()
    with failures_on_record(TRAINING_REQUESTED, body, services()):
        handle_request(TrainingRequest.from_json(body), services())
