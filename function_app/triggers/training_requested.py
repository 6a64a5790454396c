"""Queue ``training-requested``: a closing, or somebody, wants a run."""

from __future__ import annotations

from azure.functions import Blueprint, QueueMessage

from function_app.bootstrap import services
from function_app.ports import TrainingRequest
from function_app.steps.submission import handle_request

blueprint = Blueprint()


@blueprint.function_name("training_requested")
@blueprint.queue_trigger(arg_name="message", queue_name="training-requested", connection="AzureWebJobsStorage")
def training_requested(message: QueueMessage) -> None:
    """Submit the run that a message asks for."""
    handle_request(TrainingRequest.from_json(message.get_body()), services())
