"""What the messages of queue ``shard-uploaded`` say: Event Grid's events of uploads."""

from __future__ import annotations

import re
from urllib.parse import unquote

from function_app.errors import InvalidEventError
from function_app.steps.uploads import Upload
from function_app.triggers.event_envelopes import Event, read_events

_SUBJECT = re.compile(r"/blobServices/default/containers/(?P<container>[^/]+)/blobs/(?P<path>.+)", re.DOTALL)


def read_uploads(payload: bytes | str, *, num_deliveries: int = 1) -> list[Upload]:
    """Read the uploads of a queue message. Raises InvalidEventError: the message then ends as poison."""
    return [_upload(event, is_repeated=num_deliveries > 1) for event in read_events(payload)]


def _upload(event: Event, *, is_repeated: bool) -> Upload:
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
        is_repeated=is_repeated,
    )
