"""Following a growing file across restarts, truncation and rotation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

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
