"""Blob events from the writes in Azurite's access log, one event for each write."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, quote, unquote

from azure.core.exceptions import AzureError, ResourceNotFoundError
from azure.storage.blob import BlobProperties
from azure.storage.blob.aio import BlobServiceClient

from local_azure.event_grid.events import Event, event_time
from local_azure.event_grid.journal import replace_file

log = logging.getLogger("event_grid")

POLL_S = 0.05
WRITES_AT_ONCE = 16
MAX_READ_BYTES = 1 << 18
"""Maximum bytes per read: about two thousand lines of an access log."""
_MARK_BYTES = 200

Api = Literal["PutBlob", "PutBlockList", "CopyBlob", "DeleteBlob"]

_LINE = re.compile(r'^\S+ - - \[[^\]]*\] "(?P<method>[A-Z]+) (?P<target>\S+) HTTP/[\d.]+" (?P<status>\d{3}) ')

_CREATED, _ACCEPTED = "201", "202"


@dataclass(frozen=True, kw_only=True)
class SourceState:
    """The state for the next start."""

    position: Position | None
    """Position in the log; None before the first start."""
    sequence: int
    """The last sequencer used."""


def load_state(path: Path) -> SourceState:
    """Return the saved state, or the state before the first start."""
    if not path.is_file():
        return SourceState(position=None, sequence=0)
    content = json.loads(path.read_text(encoding="utf-8"))
    return SourceState(position=Position(**content["position"]), sequence=int(content["sequence"]))


@dataclass(kw_only=True)
class StorageSource:
    """Reads the log, looks up each written blob, and publishes the events in the log's order."""

    account: str
    tail: LogTail
    blobs: BlobServiceClient
    maker: BlobEventMaker
    publish: Callable[[Event], object]
    state_file: Path
    sequence: int
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Follow the log until ``stopping`` is set."""
        self._save()
        while not self.stopping.is_set():
            lines = self.tail.read_lines()
            parsed = (parse_line(line, self.account) for line in lines)
            await self._publish_all([write for write in parsed if write])
            if lines:
                self._save()
            else:
                with contextlib.suppress(TimeoutError):  # The time-out is the pause between two reads.
                    await asyncio.wait_for(self.stopping.wait(), POLL_S)

    async def _publish_all(self, writes: list[StorageWrite]) -> None:
        for start in range(0, len(writes), WRITES_AT_ONCE):
            some = writes[start : start + WRITES_AT_ONCE]
            found = await asyncio.gather(*(self._look_up(write) for write in some))
            for write, blob in zip(some, found, strict=True):
                event = self._event(write, blob)
                if event:
                    self.publish(event)

    async def _look_up(self, write: StorageWrite) -> BlobProperties | None:
        if write.api == "DeleteBlob":
            return None
        client = self.blobs.get_blob_client(write.container, write.blob)
        try:
            return await client.get_blob_properties()
        except ResourceNotFoundError:
            log.info(f"{write.encoded_path} was deleted before its {write.api} became an event")
        except AzureError as error:
            log.warning(f"{write.encoded_path}: no event for its {write.api}: {str(error).splitlines()[0]}")
        return None

    def _event(self, write: StorageWrite, blob: BlobProperties | None) -> Event | None:
        if write.api != "DeleteBlob" and blob is None:
            return None
        self.sequence += 1
        moment = datetime.now(UTC)
        if blob is None:
            return self.maker.deleted(write, self.sequence, moment)
        return self.maker.created(write, blob, self.sequence, moment)

    def _save(self) -> None:
        state = SourceState(position=self.tail.position, sequence=self.sequence)
        replace_file(self.state_file, json.dumps(asdict(state)))


@dataclass(frozen=True, kw_only=True)
class BlobEventMaker:
    """Makes the events of one storage account."""

    resource_id: str
    """The topic in the events."""
    endpoint: str
    """The account's blob endpoint, without a slash at the end."""

    def created(self, write: StorageWrite, blob: BlobProperties, sequence: int, moment: datetime) -> Event:
        """Return a BlobCreated event for `write`, whose result is `blob`."""
        facts = {
            "eTag": str(blob.etag).strip('"'),
            "contentType": blob.content_settings.content_type or "application/octet-stream",
            "contentLength": blob.size,
            "blobType": _blob_type(blob),
        }
        return self._event("Microsoft.Storage.BlobCreated", write, facts, sequence, moment)

    def deleted(self, write: StorageWrite, sequence: int, moment: datetime) -> Event:
        """Return a BlobDeleted event, which has no data about the deleted content."""
        facts = {"contentType": "application/octet-stream", "blobType": "BlockBlob"}
        return self._event("Microsoft.Storage.BlobDeleted", write, facts, sequence, moment)

    def _event(self, kind: str, write: StorageWrite, facts: dict[str, Any], sequence: int, moment: datetime) -> Event:
        container, _, blob = write.encoded_path.partition("/")
        data = {
            "api": write.api,
            "clientRequestId": str(uuid.uuid4()),
            "requestId": str(uuid.uuid4()),
            **facts,
            "url": f"{self.endpoint}/{write.encoded_path}",
            "sequencer": f"{sequence:032X}",
            "storageDiagnostics": {"batchId": str(uuid.uuid4())},
        }
        body = {
            "topic": self.resource_id,
            "subject": f"/blobServices/default/containers/{container}/blobs/{blob}",
            "eventType": kind,
            "id": str(uuid.uuid4()),
            "eventTime": event_time(moment),
            "data": data,
            "dataVersion": "",
            "metadataVersion": "1",
        }
        return Event(schema="event_grid", body=body)


def _blob_type(blob: BlobProperties) -> str:
    return str(getattr(blob.blob_type, "value", blob.blob_type))


@dataclass(frozen=True, kw_only=True)
class StorageWrite:
    """One successful write to a blob."""

    api: Api
    container: str
    blob: str
    """Decoded."""

    @property
    def encoded_path(self) -> str:
        """``container/blob``, encoded as in a URL."""
        return f"{self.container}/{quote(self.blob, safe='/~')}"


def parse_line(line: str, account: str) -> StorageWrite | None:
    """Return the write to `account` in a line of the log; None for other requests."""
    match = _LINE.match(line)
    if not match:
        return None
    path, _, query_text = match["target"].partition("?")
    parts = path.split("/", maxsplit=3)
    # ['', account, container, blob]; requests to a container or the account have fewer parts.
    if len(parts) != 4 or parts[1] != account or not parts[3]:  # noqa: PLR2004 (explained above)
        return None
    api = _api(match["method"], match["status"], parse_qs(query_text, keep_blank_values=True))
    return StorageWrite(api=api, container=unquote(parts[2]), blob=unquote(parts[3])) if api else None


def _api(method: str, status: str, query: dict[str, list[str]]) -> Api | None:
    """Return the operation's name, None if it causes no event. SAS and time-out in the query are ignored."""
    operation = query.get("comp", [""])[0]
    if "restype" in query or "snapshot" in query or "versionid" in query:
        return None
    known: dict[tuple[str, str, str], Api] = {
        ("PUT", "", _CREATED): "PutBlob",
        ("PUT", "blocklist", _CREATED): "PutBlockList",
        ("PUT", "", _ACCEPTED): "CopyBlob",
        ("DELETE", "", _ACCEPTED): "DeleteBlob",
    }
    return known.get((method, operation, status))


@dataclass(frozen=True, kw_only=True)
class Position:
    """The position in a file up to which it has been read."""

    offset: int
    """Offset in bytes, always at the start of a line."""
    mark: str
    """The last bytes before `offset`, in hexadecimal. While they are unchanged, it is the same file."""


class LogTail:
    """Returns complete lines, once each, from a position on, even across restarts, truncation and rotation."""

    def __init__(self, path: Path, position: Position | None) -> None:
        """Start at `position`; without it, at the file's end, or at the start if the file does not exist yet."""
        self._path = path
        self._position = position or _end_of(path)

    @property
    def position(self) -> Position:
        """The position after the lines that have been returned."""
        return self._position

    def read_lines(self) -> list[str]:
        """Return the new complete lines, up to MAX_READ_BYTES."""
        if not self._path.is_file():
            return []
        with self._path.open("rb") as file:
            mark = bytes.fromhex(self._position.mark)
            file.seek(max(0, self._position.offset - len(mark)))
            if file.read(len(mark)) != mark:
                # The file was replaced or emptied, so that everything in it is new.
                self._position = Position(offset=0, mark="")
                file.seek(0)
            chunk = file.read(MAX_READ_BYTES)
        complete = chunk[: chunk.rfind(b"\n") + 1]
        if not complete and len(chunk) == MAX_READ_BYTES:
            complete = chunk  # No request line is that long, and noise must not stop the reader.
        if not complete:
            return []
        self._advance(mark, complete)
        return complete.decode("utf-8", errors="replace").splitlines()

    def _advance(self, mark: bytes, read: bytes) -> None:
        before = mark if self._position.offset else b""
        seen = (before + read)[-_MARK_BYTES:]
        self._position = Position(offset=self._position.offset + len(read), mark=seen.hex())


def _end_of(path: Path) -> Position:
    if not path.is_file():
        return Position(offset=0, mark="")
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - MAX_READ_BYTES))
        chunk = file.read(MAX_READ_BYTES)
    # A line that is still being written is read later.
    end = size - (len(chunk) - chunk.rfind(b"\n") - 1)
    kept = chunk[: chunk.rfind(b"\n") + 1][-_MARK_BYTES:]
    return Position(offset=end, mark=kept.hex())
