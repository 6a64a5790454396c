"""The content of a shard: the source of its bytes, reading ahead, and recognition by the first bytes.

The content decides what a file is; its name must not contradict the content.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import ClassVar, Protocol, Self, runtime_checkable

from shard_validation.reasons import Fault, Reason, ReasonCode
from shared.errors import LandfallError
from shared.record_framing import GZIP_MAGIC, Compression, compression_of, is_record_header
from shared.safe_text import shown
from shared.shard_names import DataFormat, ShardName, ShardNameError, parse_shard_name

Chunk = bytes | memoryview

DEFAULT_CHUNK_BYTES = 8 << 20
"""For sources without a preferred size: fast enough with Blob storage, and two chunks are in memory at a time."""
_NUM_SLOTS = 2
_NUM_REFILLED_SLOTS = 3
"""Checking small records rarely releases the interpreter lock; a third slot is filled when it does."""
_Slot = Callable[[int, int], Chunk]
"""Reads a number of bytes at an offset. Each read needs a free slot, so there are never more chunks than slots."""

MAX_HELD_BYTES = 1 << 20
"""Reading this many bytes takes hardly longer than the round trip of a request."""
HEAD_BYTES = 512
"""Bytes at the start of a file that decide what it is; a text may begin with blanks."""
JPEG_MAGIC = b"\xff\xd8\xff"
PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
PARQUET_MAGIC = b"PAR1"
PARQUET_ENCRYPTED_MAGIC = b"PARE"

_KNOWN_CONTENT = (
    (JPEG_MAGIC, "a JPEG image"),
    (PNG_MAGIC, "a PNG image"),
    (b"GIF8", "a GIF image"),
    (b"RIFF", "a RIFF file (WebP, WAV)"),
    (b"PK\x03\x04", "a zip archive"),
    (b"PK\x05\x06", "an empty zip archive"),
    (b"%PDF", "a PDF"),
    (b"\x89HDF", "an HDF5 file"),
    (b"\x93NUMPY", "a NumPy array"),
    (GZIP_MAGIC, "GZIP data"),
    (b"(\xb5/\xfd", "Zstandard data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ", "xz data"),
    (b"7z\xbc\xaf", "a 7z archive"),
    (PARQUET_MAGIC, "a Parquet file"),
    (PARQUET_ENCRYPTED_MAGIC, "an encrypted Parquet file"),
    (b"ARROW1", "an Arrow file"),
    (b"Obj\x01", "an Avro file"),
    (b"SQLite format 3", "a SQLite database"),
    (b"\x7fELF", "a program"),
)
_KNOWN_TEXT = (
    (b"<!doctype html", "an HTML page"),
    (b"<html", "an HTML page"),
    (b"<?xml", "an XML document"),
    (b"<error", "an XML error"),
    (b"version https://git-lfs", "a Git LFS pointer"),
    (b"{", "JSON text"),
)


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
        """Return the error as a reason, to list it together with verdicts."""
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
    """The storage did not answer, or answered incompletely; retrying may help."""


@dataclass(frozen=True)
class HeldSource:
    """A small shard in memory."""

    name: str
    content: bytes

    @property
    def size_bytes(self) -> int:
        """Length of the content."""
        return len(self.content)

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes from ``offset``."""
        return self.content[offset : offset + length]


def held(source: ShardSource) -> ShardSource:
    """Read a small blob at once: its head, its records and its end need one request. Raises SourceError."""
    if isinstance(source, ChunkedSource) or not 0 < source.size_bytes <= MAX_HELD_BYTES:
        return source
    return HeldSource(source.name, source.read(0, source.size_bytes))


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
        """Return exactly ``length`` bytes. Raises SourceChangedError if the file has changed."""
        try:
            content = os.pread(self._file, length, offset)
        except OSError as error:
            raise self._failure(offset, error) from error
        self._check_read(offset, length, len(content))
        return content

    def read_into(self, offset: int, memory: memoryview) -> None:
        """Fill the memory. Raises SourceChangedError if the file has changed."""
        try:
            num_read = os.preadv(self._file, [memory], offset)
        except OSError as error:
            raise self._failure(offset, error) from error
        self._check_read(offset, len(memory), num_read)

    def fileno(self) -> int:
        """Return the file descriptor; callers that read from it by offset must call `check_unchanged`."""
        return self._file

    def check_unchanged(self) -> None:
        """Raise SourceChangedError if the file has changed."""
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


def read_ahead(source: ShardSource, start: int = 0) -> Iterator[Chunk]:
    """Yield the content from ``start`` in chunks, two or three of them in memory at a time. Raises SourceError.

    A chunk is valid until the next one is requested: then its memory is refilled.
    """
    chunk_bytes = source.chunk_bytes if isinstance(source, ChunkedSource) else DEFAULT_CHUNK_BYTES
    if source.size_bytes - start <= chunk_bytes:
        if start < source.size_bytes:
            yield source.read(start, source.size_bytes - start)
        return
    reader = _Reader(source, start, chunk_bytes)
    reader.start()
    try:
        yield from reader.chunks()
    finally:
        reader.stop()


class _Reader(Thread):
    """Reads while there are free slots. Queues cost a tenth of a pool's futures, which matters for small chunks."""

    def __init__(self, source: ShardSource, start: int, chunk_bytes: int) -> None:
        super().__init__(name="read-ahead", daemon=True)
        self._offsets = range(start, source.size_bytes, chunk_bytes)
        self._size_bytes = source.size_bytes
        self._free: SimpleQueue[_Slot | None] = SimpleQueue()
        self._filled: SimpleQueue[tuple[_Slot, Chunk] | BaseException] = SimpleQueue()
        for slot in _slots(source, chunk_bytes):
            self._free.put(slot)

    def run(self) -> None:
        """Read until the end, the first error, or `stop`."""
        try:
            for offset in self._offsets:
                slot = self._free.get()
                if slot is None:
                    return
                length = min(self._offsets.step, self._size_bytes - offset)
                self._filled.put((slot, slot(offset, length)))
        except BaseException as error:  # noqa: BLE001 - raised again where the chunk is awaited
            self._filled.put(error)

    def chunks(self) -> Iterator[Chunk]:
        """Yield the chunks in order. Raises what the source raised."""
        for _ in self._offsets:
            answer = self._filled.get()
            if isinstance(answer, BaseException):
                raise answer
            slot, chunk = answer
            del answer
            yield chunk
            del chunk
            self._free.put(slot)

    def stop(self) -> None:
        """Wait until the thread has ended."""
        self._free.put(None)
        self.join()


def _slots(source: ShardSource, chunk_bytes: int) -> list[_Slot]:
    """Return slots, with memory to reuse where the source can: allocating memory costs as much as reading into it."""
    if isinstance(source, RefillingSource):
        return [_refilled(source, _aligned_memory(chunk_bytes)) for _ in range(_NUM_REFILLED_SLOTS)]
    return [source.read] * _NUM_SLOTS


def _aligned_memory(num_bytes: int) -> memoryview:
    """Return page-aligned memory: AMD's Zen copies to unaligned addresses at a quarter of the speed."""
    return memoryview(mmap(-1, num_bytes))


def _refilled(source: RefillingSource, memory: memoryview) -> _Slot:
    def refill(offset: int, length: int) -> Chunk:
        source.read_into(offset, memory[:length])
        return memory[:length].toreadonly()

    return refill


@dataclass(frozen=True, kw_only=True)
class Content:
    """The kind of content that the first bytes of a file show."""

    data_format: DataFormat | None
    """None if the file is not a shard."""
    compression: Compression = ""
    seen: str = ""
    """A description for messages."""


def recognise(head: bytes) -> Content:
    """Return what a file is. Unknown content counts as a TFRecord shard, which may be a damaged one."""
    if is_record_header(head):
        return Content(data_format="tfrecord", seen="a TFRecord shard")
    if head.startswith((PARQUET_MAGIC, PARQUET_ENCRYPTED_MAGIC)):
        return Content(data_format="parquet", seen="a Parquet shard")
    if compression := compression_of(head):
        return Content(data_format="tfrecord", compression=compression, seen=f"{compression.upper()} data")
    if words := _known_content(head):
        return Content(data_format=None, seen=words)
    return Content(data_format="tfrecord", seen=describe_content(head))


def describe_content(content: bytes | memoryview) -> str:
    """Return a description of what bytes look like, for messages."""
    content = bytes(content[:HEAD_BYTES])
    return _known_content(content) or (f"bytes beginning {content[:8].hex(' ')}" if content else "no bytes")


def name_fault(name: str, content: Content) -> Fault | None:
    """Return the contradiction between a name's suffix and the content, or None."""
    lower = name.lower()
    if lower.endswith(".parquet"):
        promised, holds = "a Parquet shard", content.data_format == "parquet"
    elif lower.endswith((".tfrecord.gz", ".tfrecords.gz")):
        promised, holds = "a GZIP-compressed TFRecord shard", content.compression == "gzip"
    elif ".tfrecord" in lower:
        promised, holds = "a TFRecord shard", content.data_format == "tfrecord"
    else:
        return None
    if holds:
        return None
    return Fault(
        code=ReasonCode.NAME_CONTRADICTS_CONTENT, expected=f"{promised}, as the name says", seen=content.seen
    )


def check_name(name: str, read: Callable[[str], ShardName] = parse_shard_name) -> Reason | None:
    """Return why a file name (without folders) is not a shard name, or None if it is one.

    ``read`` reads names of another layout, which may have folders.
    """
    try:
        read(name)
    except ShardNameError as error:
        return Reason(
            code=ReasonCode.NAME_NOT_UNDERSTOOD,
            shard=shown(name),
            message=shown(str(error)),
            expected="a name like train-00003-of-00128.tfrecord" if read is parse_shard_name else "another path",
            seen=shown(name),
        )
    return None


def _known_content(content: bytes) -> str | None:
    for magic, words in _KNOWN_CONTENT:
        if content.startswith(magic):
            return words
    text = content[:64].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    return next((words for magic, words in _KNOWN_TEXT if text.startswith(magic)), None)
