"""Reader of all events and queue messages: both envelopes of Event Grid, uploads, training requests.

Sources: Event Grid's event schema and CloudEvents 1.0, one event or several in a payload.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self
from urllib.parse import unquote

from function_app.domain.errors import InvalidEventError
from function_app.domain.records import DatasetVersion
from shared.traces import TRACEPARENT, Place, read_traceparent

SHARD_UPLOADED = "shard-uploaded"
SHARD_UPLOADED_BULK = "shard-uploaded-bulk"
TRAINING_REQUESTED = "training-requested"
RUN_CHANGED = "run-changed"
SWEEP_REQUESTED = "sweep-requested"
"""The queues. Event Grid writes to ``shard-uploaded`` and ``run-changed``."""
CREATED = "Microsoft.Storage.BlobCreated"
FINAL_WRITES = frozenset({"PutBlob", "PutBlockList", "CopyBlob", "FlushWithClose"})
"""Calls after which a blob is complete. After ``CreateFile`` it is still empty."""
MAX_REQUEST_BYTES = 4096
MAX_PAYLOAD_BYTES = 1 << 20
"""Event Grid's limit for one event or batch."""
MAX_EVENTS = 1000
MAX_MESSAGE_BYTES = 48 << 10
"""Maximum UTF-8 bytes of a queue message: a queue accepts 64 KiB of Base64."""
MAX_JOINED_CHARS = 40_000
"""Maximum ASCII characters of a joined message."""
MAX_TEXT_CHARS = 16 << 10
"""A blob's name has up to 1,024 characters of up to four bytes each, percent-encoded in a subject."""


@dataclass(frozen=True, kw_only=True)
class QueuedMessage:
    """A message that was received from a queue and is hidden there for a while."""

    text: str
    num_deliveries: int
    """How often it was received, including this time."""
    message_id: str
    receipt: str
    """The receipt that storage requires to delete it."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """The members that both envelopes share."""

    id: str
    type: str
    subject: str
    data: Mapping[str, Any]
    traceparent: object = None
    """The CloudEvents extension for tracing, unchecked."""


def read_events(payload: bytes | str) -> list[Event]:
    """Read the events of a payload. Raises InvalidEventError."""
    return [event_of(member) for member in _members(payload)]


def single_messages(payload: bytes | str) -> list[str]:
    """Return a message for each event of a payload. Raises InvalidEventError."""
    return [json.dumps(member) for member in _members(payload)]


def joined_messages(payloads: Iterable[bytes | str]) -> list[str]:
    """Join several messages into as few as the queue's limit allows, keeping the order. Raises InvalidEventError."""
    joined = list[list[str]]()
    size = MAX_JOINED_CHARS
    for event in (event for payload in payloads for event in single_messages(payload)):
        size += len(event) + 1
        if size > MAX_JOINED_CHARS:
            joined.append([])
            size = len(event) + 2
        joined[-1].append(event)
    return [f"[{','.join(events)}]" for events in joined]


def _members(payload: bytes | str) -> list[Any]:
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise InvalidEventError(f"payload has {len(payload)} bytes; at most {MAX_PAYLOAD_BYTES} are read")
    try:
        document = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise InvalidEventError(f"payload is not JSON: {error}") from error
    members = document if isinstance(document, list) else [document]
    if not 0 < len(members) <= MAX_EVENTS:
        raise InvalidEventError(f"payload holds {len(members)} events; 1 to {MAX_EVENTS} are read")
    return members


def event_of(members: Any) -> Event:
    """Read one event of either envelope. Raises InvalidEventError."""
    if not isinstance(members, Mapping):
        raise InvalidEventError(f"an event is of type {type(members).__name__}, not a JSON object")
    kind = "type" if "specversion" in members else "eventType"
    data = members.get("data")
    if not isinstance(data, Mapping):
        raise InvalidEventError(f"event {str(members.get('id'))[:100]}: data is not an object: {data!r:.100}")
    texts = {"id": "id", "type": kind, "subject": "subject"}
    return Event(
        data=data,
        traceparent=members.get(TRACEPARENT),
        **{name: _text(members, member) for name, member in texts.items()},
    )


def _text(members: Mapping[str, Any], name: str) -> str:
    value = members.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= MAX_TEXT_CHARS:
        raise InvalidEventError(
            f"event: {name} is not a text of 1 to {MAX_TEXT_CHARS} characters: {str(value)[:100]!r}"
        )
    return value


_BLOB_SUBJECT = re.compile(r"/blobServices/default/containers/(?P<container>[^/]+)/blobs/(?P<path>.+)", re.DOTALL)


def blob_of(subject: str) -> tuple[str, str] | None:
    """Return the container and path of the blob in an event's subject, None if it names no blob."""
    match = _BLOB_SUBJECT.fullmatch(subject)
    return None if match is None else (unquote(match["container"]), unquote(match["path"]))


def read_uploads(payload: bytes | str, *, num_deliveries: int = 1) -> list[Upload]:
    """Read the uploads in a queue message. After InvalidEventError the message becomes a dead letter."""
    return [_upload(event, is_repeated=num_deliveries > 1) for event in read_events(payload)]


def _upload(event: Event, *, is_repeated: bool) -> Upload:
    blob = blob_of(event.subject)
    if blob is None:
        raise InvalidEventError(
            f"event {event.id}: subject is not /blobServices/default/containers/<container>/blobs/<path>: "
            f"{event.subject[:200]!r}"
        )
    return Upload(
        event_type=event.type,
        api=str(event.data.get("api") or "unknown"),
        container=blob[0],
        path=blob[1],
        event_id=event.id,
        is_repeated=is_repeated,
        size_bytes=size if isinstance(size := event.data.get("contentLength"), int) else None,
        traced_from=read_traceparent(event.traceparent),
    )


@dataclass(frozen=True, kw_only=True)
class TrainingRequest:
    """One message of the queue ``training-requested``."""

    dataset_version: DatasetVersion
    generation: int
    trigger: str
    """``closed``, ``http`` or ``cli``."""
    run_id: str | None = None
    """The run that the caller has already claimed; if None, the submission claims one."""

    def to_json(self) -> str:
        """Return the message's text."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read what `to_json` wrote. Raises InvalidEventError."""
        if len(text) > MAX_REQUEST_BYTES:
            raise InvalidEventError(f"training request has {len(text)} bytes; at most {MAX_REQUEST_BYTES} are read")
        try:
            members = json.loads(text)
            request = cls(**{**members, "dataset_version": DatasetVersion(**members["dataset_version"])})
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InvalidEventError(f"training request was not sent by Landfall: {error!r}") from error
        return request._checked()

    def _checked(self) -> Self:
        version = self.dataset_version
        texts = (version.dataset, version.version, self.trigger, self.run_id or "-")
        if not all(isinstance(t, str) and t for t in texts) or type(self.generation) is not int:
            raise InvalidEventError(f"training request has members of wrong types: {self!r}")
        return self


@dataclass(frozen=True, kw_only=True)
class Upload:
    """An upload as an event describes it. Only the path is used, and checked against the store."""

    event_type: str
    api: str
    container: str
    path: str
    event_id: str
    is_repeated: bool = False
    """Whether the message was delivered before; its handler may have crashed on this shard."""
    size_bytes: int | None = None
    """Size as the event states it, which only affects the scheduling of shards."""
    traced_from: Place | None = None
    """The span of the event's sender, which is only used for a link in the trace."""


def first_event(payload: str) -> Mapping[str, Any]:
    """Return the first event of a payload. Raises InvalidEventError."""
    try:
        document = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise InvalidEventError(f"payload is not JSON: {error}") from error
    event = document[0] if isinstance(document, list) and document else document
    if not isinstance(event, Mapping):
        raise InvalidEventError(f"payload is not an event: its type is {type(event).__name__}")
    return event


MAX_RUN_ID_CHARS = 300
_RUN_SUBJECT = re.compile(r"(?:.*/)?runs/(?P<run_id>[^/]{1,300})")


def read_run_ids(payload: bytes | str) -> list[str]:
    """Return the distinct ids of the runs that a message's events name. Raises InvalidEventError."""
    events = _members(payload)
    if not all(isinstance(event, Mapping) for event in events):
        raise InvalidEventError("run event: not a JSON object")
    return list(dict.fromkeys(read_run_id(event.get("subject"), event.get("data")) for event in events))


def read_run_id(subject: object, data: object) -> str:
    """Return the id of the run that an event names. Raises InvalidEventError.

    No other field is read, because each one may be null or be outside ``data``.
    """
    stated = data.get("runId") if isinstance(data, dict) else None
    if isinstance(stated, str) and 0 < len(stated) <= MAX_RUN_ID_CHARS:
        return stated
    match = _RUN_SUBJECT.fullmatch(subject) if isinstance(subject, str) else None
    if match is None:
        raise InvalidEventError(
            f"run event: names no run, neither in data.runId nor in the subject {str(subject)[:200]!r}"
        )
    return match["run_id"]
