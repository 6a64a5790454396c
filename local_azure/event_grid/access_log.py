"""Azurite's access log: which lines are writes that Event Grid would tell of."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qs, quote, unquote

Api = Literal["PutBlob", "PutBlockList", "CopyBlob", "DeleteBlob"]

_LINE = re.compile(r'^\S+ - - \[[^\]]*\] "(?P<method>[A-Z]+) (?P<target>\S+) HTTP/[\d.]+" (?P<status>\d{3}) ')

_CREATED, _ACCEPTED = "201", "202"


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
    """The write to ``account`` of which ``line`` tells, or None."""
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
    """The operation's name, None for what raises no event. A SAS or a time-out in the query does not matter."""
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


MAX_READ_BYTES = 1 << 18
"""At once: about two thousand lines of an access log."""

_MARK_BYTES = 200


@dataclass(frozen=True, kw_only=True)
class Position:
    """How far a file has been read."""

    offset: int
    """Bytes from the start; always just after a line's end."""
    mark: str
    """The last bytes before ``offset``, in hexadecimal: do they still stand there, then it is the same file."""


class LogTail:
    """Complete lines, once each, from where the last position was."""

    def __init__(self, path: Path, position: Position | None) -> None:
        """Without a position reading starts at the file's end, or at the start of one that does not exist yet."""
        self._path = path
        self._position = position or _end_of(path)

    @property
    def position(self) -> Position:
        """After the lines that were given out last."""
        return self._position

    def read_lines(self) -> list[str]:
        """The new complete lines, up to MAX_READ_BYTES; none where there are none yet."""
        if not self._path.is_file():
            return []
        with self._path.open("rb") as log:
            mark = bytes.fromhex(self._position.mark)
            log.seek(max(0, self._position.offset - len(mark)))
            if log.read(len(mark)) != mark:
                # Another file took its place, or it was emptied: everything in it is new.
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
