"""Queue ``shard-uploaded``: Event Grid says that a blob was written."""

from __future__ import annotations

import re
from urllib.parse import unquote

from azure.functions import Blueprint, QueueMessage

from function_app.bootstrap import services
from function_app.dead_letters import SHARD_UPLOADED
from function_app.errors import InvalidEventError
from function_app.steps.message_failures import failures_on_record
from function_app.steps.uploads import Upload, handle_upload
from function_app.triggers.event_envelopes import Event, read_events

blueprint = Blueprint()

_SUBJECT = re.compile(r"/blobServices/default/containers/(?P<container>[^/]+)/blobs/(?P<path>.+)", re.DOTALL)


@blueprint.function_name("shard_uploaded")
@blueprint.queue_trigger(arg_name="message", queue_name="shard-uploaded", connection="AzureWebJobsStorage")
def shard_uploaded(message: QueueMessage) -> None:
    """Judge the shards that a message names."""
    body = message.get_body()
    with failures_on_record(SHARD_UPLOADED, body, services()):
        for upload in read_uploads(body):
            handle_upload(upload, services())


def read_uploads(payload: bytes | str) -> list[Upload]:
    """Read the uploads of a queue message. Raises InvalidEventError: the message then ends as poison."""
    return [_upload(event) for event in read_events(payload)]


def _upload(event: Event) -> Upload:
    match = _SUBJECT.fullmatch(event.subject)
    if match is None:
        raise InvalidEventError(
            f"event {event.id}: subject should be /blobServices/default/containers/<c>/blobs/<path>, "
            f"was {event.subject[:200]!r}"
        )
    return Upload(
        event_type=event.type,
        api=str(event.data.get("api") or "unknown"),
        container=unquote(match["container"]),
        path=unquote(match["path"]),
        event_id=event.id,
    )
