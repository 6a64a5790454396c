"""Azurite's access log: which lines are writes that raise events, and how the growing file is followed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qs, quote, unquote

Api = Literal["PutBlob", "PutBlockList", "CopyBlob", "DeleteBlob"]

_LINE = re.compile(r'^\S+ - - \[[^\]]*\] "(?P<method>[A-Z]+) (?P<target>\S+) HTTP/[\d.]+" (?P<status>\d{3}) ')

_CREATED, _ACCEPTED = "201", "202"

MAX_READ_BYTES = 1 << 18
"""Read at once: about two thousand lines of an access log."""
_MARK_BYTES = 200


@dataclass(frozen=True, kw_only=True)
class StorageWrite:
    """One successful write to a blob."""

    api: Api
    container: str
    blob: str
    """Decoded."""

    @property
    def encoded_path(self) -> str:
        """``container/blob`` as it stands in a URL."""
        return f"{self.container}/{quote(self.blob, safe='/~')}"


def parse_line(line: str, account: str) -> StorageWrite | None:
    """Return the write to `account` in a line of the log; None for other requests."""
    match = _LINE.match(line)
    if not match:
        return None
    path, _, query_text = match["target"].partition("?")
    parts = path.split("/", maxsplit=3)
    # ['', account, container, blob]; less is a request to a container or to the account.
    if len(parts) != 4 or parts[1] != account or not parts[3]:  # noqa: PLR2004 (explained above)
        return None
    api = _api(match["method"], match["status"], parse_qs(query_text, keep_blank_values=True))
    return StorageWrite(api=api, container=unquote(parts[2]), blob=unquote(parts[3])) if api else None


def _api(method: str, status: str, query: dict[str, list[str]]) -> Api | None:
    """Return the operation's name, None where it raises no event. SAS and time-out in the query are ignored."""
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
    """How far a file has been read."""

    offset: int
    """Bytes from the start; always the start of a line."""
    mark: str
    """The last bytes before `offset`, in hexadecimal; while they are unchanged, it is the same file."""


class LogTail:
    """Returns complete lines, once each, from a position on: across restarts, truncation and rotation."""

    def __init__(self, path: Path, position: Position | None) -> None:
        """Start at `position`; without one at the file's end, or at the start of a file that does not exist yet."""
        self._path = path
        self._position = position or _end_of(path)

    @property
    def position(self) -> Position:
        """The position after the lines that were returned last."""
        return self._position

    def read_lines(self) -> list[str]:
        """Return the new complete lines, up to MAX_READ_BYTES."""
        if not self._path.is_file():
            return []
        with self._path.open("rb") as log:
            mark = bytes.fromhex(self._position.mark)
            log.seek(max(0, self._position.offset - len(mark)))
            if log.read(len(mark)) != mark:
                # The file was replaced or emptied: everything in it is new.
                self._position = Position(offset=0, mark="")
                log.seek(0)
            chunk = log.read(MAX_READ_BYTES)
        complete = chunk[: chunk.rfind(b"\n") + 1]
        if not complete and len(chunk) == MAX_READ_BYTES:
            complete = chunk  # no request line is that long: noise, which must not stop the reader
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
    with path.open("rb") as log:
        size = log.seek(0, 2)
        log.seek(max(0, size - MAX_READ_BYTES))
        chunk = log.read(MAX_READ_BYTES)
    # A line that is being written belongs to the future.
    end = size - (len(chunk) - chunk.rfind(b"\n") - 1)
    kept = chunk[: chunk.rfind(b"\n") + 1][-_MARK_BYTES:]
    return Position(offset=end, mark=kept.hex())
