"""Where the bytes of a shard come from: one immutable content, read by ranges."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar, Protocol, Self, runtime_checkable

from shard_validation.reasons import Reason, ReasonCode
from shared.errors import LandfallError


class ShardSource(Protocol):
    """One immutable content: an opened file, or a blob pinned to its ETag."""

    @property
    def name(self) -> str:
        """The file name: the last segment of the path."""
        ...

    @property
    def size_bytes(self) -> int:
        """Length of the content."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes from ``offset``. Raises SourceError. Called from two threads."""
        ...


@runtime_checkable
class ChunkedSource(Protocol):
    """A source with a preferred read size."""

    @property
    def chunk_bytes(self) -> int:
        """Preferred bytes per read."""
        ...


@runtime_checkable
class RefillingSource(Protocol):
    """A source that can read into existing memory."""

    def read_into(self, offset: int, memory: memoryview) -> None:
        """Fill the memory with the bytes from ``offset``. Raises SourceError."""
        ...


class SourceError(LandfallError):
    """The shard cannot be read, so there is no verdict."""

    code: ClassVar[ReasonCode] = ReasonCode.SOURCE_UNAVAILABLE

    def reason(self, shard: str) -> Reason:
        """Return the error as a reason, to list it beside verdicts."""
        return Reason(code=self.code, shard=shard, message=str(self))


class SourceChangedError(SourceError):
    """The content is no longer the one that was opened: start the validation again."""

    code = ReasonCode.SOURCE_CHANGED


class SourceGoneError(SourceError):
    """The shard was deleted."""

    code = ReasonCode.SOURCE_GONE


class SourceForbiddenError(SourceError):
    """Reading the shard is not allowed, or no longer allowed."""

    code = ReasonCode.SOURCE_FORBIDDEN


class SourceUnavailableError(SourceError):
    """The storage did not answer, or not completely; trying again may help."""


class LocalFileSource:
    """A local file, pinned to its size and modification time as a blob is to its ETag."""

    chunk_bytes = 2 << 20
    """Chunks that stay in the processor's cache between reading and checking are faster than fewer, larger reads."""

    def __init__(self, path: Path) -> None:
        """Open the file. Raises SourceGoneError, SourceForbiddenError, SourceUnavailableError."""
        self.name = path.name
        self._path = path
        self._file = _open(path)
        self._identity = self._identify()
        self.size_bytes = self._identity[0]

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes. Raises SourceChangedError where the file has changed."""
        try:
            content = os.pread(self._file, length, offset)
        except OSError as error:
            raise self._failure(offset, error) from error
        self._check_read(offset, length, len(content))
        return content

    def read_into(self, offset: int, memory: memoryview) -> None:
        """Fill the memory. Raises SourceChangedError where the file has changed."""
        try:
            num_read = os.preadv(self._file, [memory], offset)
        except OSError as error:
            raise self._failure(offset, error) from error
        self._check_read(offset, len(memory), num_read)

    def fileno(self) -> int:
        """Return the file descriptor; callers that read from it by offset must call `check_unchanged`."""
        return self._file

    def check_unchanged(self) -> None:
        """Raise SourceChangedError where the file has changed."""
        if self._identify() != self._identity:
            raise SourceChangedError(f"{self._path}: the file changed while it was read; validate it again")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _identify(self) -> tuple[int, int]:
        status = os.fstat(self._file)
        return status.st_size, status.st_mtime_ns

    def _check_read(self, offset: int, length: int, num_read: int) -> None:
        is_short = num_read != length
        if is_short or offset + length == self.size_bytes:
            self.check_unchanged()
        if is_short:
            raise SourceUnavailableError(
                f"{self._path}: reading at byte {offset} returned {num_read} of {length} bytes; try again"
            )

    def _failure(self, offset: int, error: OSError) -> SourceUnavailableError:
        return SourceUnavailableError(f"{self._path}: reading at byte {offset} failed: {error}")


def _open(path: Path) -> int:
    try:
        if not path.is_file():
            raise SourceGoneError(f"{path}: no such file")
        return os.open(path, os.O_RDONLY)
    except FileNotFoundError as error:
        raise SourceGoneError(f"{path}: no such file") from error
    except PermissionError as error:
        raise SourceForbiddenError(f"{path}: reading the file is not allowed: {error}") from error
    except (OSError, ValueError) as error:
        raise SourceUnavailableError(f"{path}: the file cannot be opened: {error}") from error
