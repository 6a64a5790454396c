"""Envelopes of events: Event Grid's own schema and CloudEvents 1.0, one or several in a payload."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self
from urllib.parse import unquote

from function_app.domain.errors import InvalidEventError
from function_app.domain.records import DatasetVersion

MAX_PAYLOAD_BYTES = 1 << 20
"""Event Grid's own limit for one event or batch."""
MAX_EVENTS = 1000
MAX_TEXT_CHARS = 16 << 10
"""A blob's name has up to 1,024 characters, each of up to four bytes, each percent-encoded in a subject."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """What both envelopes have in common."""

    id: str
    type: str
    subject: str
    data: Mapping[str, Any]


def read_events(payload: bytes | str) -> list[Event]:
    """Read the events of a payload. Raises InvalidEventError: trying again will not help."""
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise InvalidEventError(f"payload should be at most {MAX_PAYLOAD_BYTES} bytes, was {len(payload)}")
    try:
        document = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise InvalidEventError(f"payload should be JSON, was not: {error}") from error
    members = document if isinstance(document, list) else [document]
    if not 0 < len(members) <= MAX_EVENTS:
        raise InvalidEventError(f"payload should hold 1 to {MAX_EVENTS} events, held {len(members)}")
    return [event_of(member) for member in members]


def event_of(members: Any) -> Event:
    """Read one event of either envelope. Raises InvalidEventError."""
    if not isinstance(members, Mapping):
        raise InvalidEventError(f"an event should be a JSON object, was {type(members).__name__}")
    kind = "type" if "specversion" in members else "eventType"
    data = members.get("data")
    if not isinstance(data, Mapping):
        raise InvalidEventError(f"event {str(members.get('id'))[:100]}: data should be an object, was {data!r:.100}")
    texts = {"id": "id", "type": kind, "subject": "subject"}
    return Event(data=data, **{name: _text(members, member) for name, member in texts.items()})


def _text(members: Mapping[str, Any], name: str) -> str:
    value = members.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= MAX_TEXT_CHARS:
        raise InvalidEventError(f"event: {name} should be a text of 1 to {MAX_TEXT_CHARS}, was {str(value)[:100]!r}")
    return value


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


SHARD_UPLOADED = "shard-uploaded"


TRAINING_REQUESTED = "training-requested"


RUN_CHANGED = "run-changed"
"""Sources: two queues, and the trigger that Event Grid calls itself."""


MAX_REQUEST_BYTES = 4096


@dataclass(frozen=True, kw_only=True)
class TrainingRequest:
    """One message of the queue ``training-requested``."""

    dataset_version: DatasetVersion
    generation: int
    trigger: str
    """``closed``, ``http`` or ``cli``."""
    run_id: str | None = None
    """Where the caller has claimed a run already; None lets the step resolve it."""

    def to_json(self) -> str:
        """Return the message's text."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read what `to_json` wrote. Raises InvalidEventError."""
        if len(text) > MAX_REQUEST_BYTES:
            raise InvalidEventError(f"training request should be at most {MAX_REQUEST_BYTES} bytes, was {len(text)}")
        try:
            members = json.loads(text)
            request = cls(**{**members, "dataset_version": DatasetVersion(**members["dataset_version"])})
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidEventError(f"training request should be what Landfall sends, was not: {error!r}") from error
        return request._checked()

    def _checked(self) -> Self:
        version = self.dataset_version
        texts = (version.dataset, version.version, self.trigger, self.run_id or "-")
        if not all(isinstance(t, str) and t for t in texts) or type(self.generation) is not int:
            raise InvalidEventError(f"training request has members of wrong types: {self!r}")
        return self


FINAL_WRITES = frozenset({"PutBlob", "PutBlockList", "CopyBlob", "FlushWithClose"})
"""Calls after which a blob is complete; ``CreateFile`` announces one that is still empty."""


CREATED = "Microsoft.Storage.BlobCreated"


@dataclass(frozen=True, kw_only=True)
class Upload:
    """What an event claims; only the path is believed, and only after a look at the store."""

    event_type: str
    api: str
    container: str
    path: str
    event_id: str
    is_repeated: bool = False
    """Whether the message was delivered before: whoever had it may have died of it."""


MAX_RUN_ID_CHARS = 300
_RUN_SUBJECT = re.compile(r"(?:.*/)?runs/(?P<run_id>[^/]{1,300})")


def read_run_id(subject: str | None, data: object) -> str:
    """Return the id of the run that an event names. Raises InvalidEventError.

    No other field is read: each may be null, or stand beside ``data`` instead of in it.
    """
    stated = data.get("runId") if isinstance(data, dict) else None
    if isinstance(stated, str) and 0 < len(stated) <= MAX_RUN_ID_CHARS:
        return stated
    match = _RUN_SUBJECT.fullmatch(subject or "")
    if match is None:
        raise InvalidEventError(
            f"run event: names no run, neither in data.runId nor in the subject {str(subject)[:200]!r}"
        )
    return match["run_id"]
