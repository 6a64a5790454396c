"""Find the damaged shard and record after reading has failed, because TensorFlow names neither."""

from __future__ import annotations

import gzip
import io
import struct
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from shared.manifest import ManifestShard
from shared.record_framing import (
    FRAME_OVERHEAD_BYTES,
    HEADER_BYTES,
    TRAILER_BYTES,
    compression_of_file,
    masked_crc32c,
)
from training_job.data.content_check import check_content
from training_job.errors import DataChangedError, DataError

BUDGET_S = 120.0
"""Time limit of the search; all ranks wait meanwhile."""
MAX_RECORD_BYTES = 1 << 31
"""protobuf cannot parse longer records; a damaged length may have any value."""

_INPUT_BYTES = 64 << 10
_HEADER = struct.Struct("<QI")
_TRAILER = struct.Struct("<I")

Suspects = Iterable[tuple[ManifestShard, Path]]


def find_damage(
    suspects: Suspects, data_format: str, *, budget_s: float = BUDGET_S, clock: Callable[[], float] = time.monotonic
) -> str:
    """Return a sentence about the first shard that cannot be read, or that no shard differs.

    Raises DataChangedError, naming the first damaged record, if a shard is not the accepted one.
    """
    until, intact = clock() + budget_s, 0
    for shard, path in suspects:
        if clock() > until:
            return f"The first {intact} shards of this rank are as the manifest says; the others were not checked."
        try:
            check_shard(shard, path, data_format)
        except DataError as error:
            return str(error)
        intact += 1
    return f"All {intact} shards of this rank are as the manifest says: its features do not fit, or reading failed."


def check_shard(shard: ManifestShard, path: Path, data_format: str) -> None:
    """Read a whole file. Raises DataChangedError, naming the first damaged record if there is one, or DataError."""
    try:
        check_content(shard, path)
    except DataChangedError as error:
        raise DataChangedError(f"{error} {_bad_record(path, shard.num_records, data_format)}".strip()) from error


def _bad_record(path: Path, num_records: int, data_format: str) -> str:
    """Return a sentence about the first damaged record; empty if there is none or it cannot be determined."""
    count = 0
    if data_format != "tfrecord":
        return ""
    try:
        with _opened(path) as stream:
            for count, reason in enumerate(_records(stream), start=1):
                if reason:
                    return f"Record {count - 1} {reason}."
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        return f"Record {count} cannot be decompressed: {error}."
    except OSError:
        return ""
    return "" if count == num_records else f"It holds {count} records instead of {num_records}."


def _opened(path: Path) -> BinaryIO:
    """Open a shard's records, uncompressed."""
    compression = compression_of_file(path)
    if compression == "zlib":
        return io.BufferedReader(_Inflated(path))
    return cast("BinaryIO", gzip.open(path, "rb") if compression == "gzip" else path.open("rb"))


class _Inflated(io.RawIOBase):
    """The content of a ZLIB stream; Python has a file class for GZIP streams only."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._stream = zlib.decompressobj()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a part of the buffer; 0 at the end. Raises EOFError if the stream is cut off, and zlib.error."""
        block = b""
        while not block and not self._stream.eof:
            piece = self._stream.unconsumed_tail or self._file.read(_INPUT_BYTES)
            if not piece:
                raise EOFError("the ZLIB stream ended before its end was marked")
            block = self._stream.decompress(piece, len(buffer))
        buffer[: len(block)] = block
        return len(block)

    def close(self) -> None:
        self._file.close()
        super().close()


def _records(stream: BinaryIO) -> Iterator[str]:
    """Yield the problem of each record, empty if it is sound; end after the first damaged record."""
    start = 0
    while header := stream.read(HEADER_BYTES):
        reason, length = _read(stream, header)
        yield f"(at byte {start}) {reason}" if reason else ""
        if reason:
            return
        start += length + FRAME_OVERHEAD_BYTES


def _read(stream: BinaryIO, header: bytes) -> tuple[str, int]:
    """Read the rest of a record; return its problem (empty if it is sound) and the length of its payload."""
    if len(header) < HEADER_BYTES:
        return "ends within its header", 0
    length, expected = _HEADER.unpack(header)
    if masked_crc32c(header[: HEADER_BYTES - _TRAILER.size]) != expected or length > MAX_RECORD_BYTES:
        return "has a damaged length", 0
    payload, trailer = stream.read(length), stream.read(TRAILER_BYTES)
    if len(payload) < length or len(trailer) < TRAILER_BYTES:
        return f"ends after {len(payload)} of {length} bytes", length
    if masked_crc32c(payload) != _TRAILER.unpack(trailer)[0]:
        return f"has a damaged payload of {length} bytes", length
    return "", length
