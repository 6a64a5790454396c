"""What a dead letter is about, as far as its payload can be understood."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from function_app.dead_letters import RUN_CHANGED, SHARD_UPLOADED, TRAINING_REQUESTED
from function_app.errors import InvalidEventError
from function_app.ports import TrainingRequest
from function_app.steps.run_events import read_run_id

_BLOB = re.compile(r"/blobServices/default/containers/[^/]+/blobs/(?P<path>.+)", re.DOTALL)


def subject_of(source: str, payload: str) -> str:
    """Return a blob's path, a run id or ``dataset/version``; empty where the payload names none."""
    try:
        if source == TRAINING_REQUESTED:
            request = TrainingRequest.from_json(payload)
            return request.run_id or str(request.dataset_version)
        event = first_event(payload)
        if source == RUN_CHANGED:
            return read_run_id(str(event.get("subject") or ""), event.get("data"))
    except InvalidEventError:
        return ""
    match = _BLOB.fullmatch(str(event.get("subject") or ""))
    return unquote(match["path"]) if source == SHARD_UPLOADED and match else ""


def first_event(payload: str) -> Mapping[str, Any]:
    """Return the event of a payload, the first where it holds several. Raises InvalidEventError."""
    try:
        document = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise InvalidEventError(f"payload should be JSON, was not: {error}") from error
    event = document[0] if isinstance(document, list) and document else document
    if not isinstance(event, Mapping):
        raise InvalidEventError(f"payload should hold an event, was {type(event).__name__}")
    return event
