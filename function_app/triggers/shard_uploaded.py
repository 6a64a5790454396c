"""Queue ``shard-uploaded``: Event Grid says that a blob was written."""

from __future__ import annotations

from azure.functions import Blueprint, QueueMessage

from function_app.bootstrap import services
from function_app.dead_letters import SHARD_UPLOADED

blueprint = Blueprint()


@blueprint.function_name("shard_uploaded")
@blueprint.queue_trigger(arg_name="message", queue_name="shard-uploaded", connection="AzureWebJobsStorage")
def shard_uploaded(message: QueueMessage) -> None:
    """Judge the shards that a message names."""
    from function_app.steps.message_failures import failures_on_record
    from function_app.steps.uploads import handle_upload
    from function_app.triggers.upload_events import read_uploads

    body = message.get_body()
    with failures_on_record(SHARD_UPLOADED, body, services()):
        for upload in read_uploads(body, num_deliveries=message.dequeue_count or 1):
            handle_upload(upload, services())
