"""Finds the damaged shard and record after reading has failed, because TensorFlow names neither."""

from __future__ import annotations

import gzip
import struct
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from shared.crc import crc32c_of_file
from shared.manifest import ManifestShard
from shared.record_framing import FRAME_OVERHEAD_BYTES, HEADER_BYTES, TRAILER_BYTES, is_gzip, masked_crc32c

BUDGET_S = 120.0
"""Time for the search; all ranks wait meanwhile."""
MAX_RECORD_BYTES = 1 << 31
"""protobuf cannot parse longer records; a damaged length may have any value."""

_HEADER = struct.Struct("<QI")
_TRAILER = struct.Struct("<I")

Suspects = Iterable[tuple[ManifestShard, Path]]


def find_damage(
    suspects: Suspects, data_format: str, *, budget_s: float = BUDGET_S, clock: Callable[[], float] = time.monotonic
) -> str:
    """Return a sentence about the first shard that differs from the manifest, or one that says that none does."""
    until, intact = clock() + budget_s, 0
    for shard, path in suspects:
        if clock() > until:
            return f"The first {intact} shards of this rank are as the manifest says; the others were not checked."
        found = _damage(shard, path, data_format)
        if found:
            return found
        intact += 1
    return f"All {intact} shards of this rank are as the manifest says: its features do not fit, or reading failed."


def _damage(shard: ManifestShard, path: Path, data_format: str) -> str:
    try:
        seen = crc32c_of_file(path)
        if seen == shard.crc32c:
            return ""
        where = _bad_record(path, shard.num_records) if data_format == "tfrecord" else ""
    except OSError as error:
        return f"Shard {path} cannot be read: {error.strerror}."
    return (
        f"Shard {path} has CRC32C {seen} instead of the manifest's {shard.crc32c}: "
        f"it changed after the dataset version was closed. {where}".strip()
    )


def _bad_record(path: Path, num_records: int) -> str:
    """Return a sentence about the first damaged record; empty if there is none."""
    count = 0
    with _opened(path) as stream:
        try:
            for count, reason in enumerate(_records(stream), start=1):
                if reason:
                    return f"Record {count - 1} {reason}."
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            return f"Record {count} cannot be decompressed: {error}."
    return "" if count == num_records else f"It holds {count} records instead of {num_records}."


def _opened(path: Path) -> BinaryIO:
    return cast("BinaryIO", gzip.open(path, "rb") if is_gzip(path) else path.open("rb"))


def _records(stream: BinaryIO) -> Iterator[str]:
    """Yield for each record what is wrong with it, empty if nothing; end after the first damaged one."""
    start = 0
    while header := stream.read(HEADER_BYTES):
        reason, length = _read(stream, header)
        yield f"(at byte {start}) {reason}" if reason else ""
        if reason:
            return
        start += length + FRAME_OVERHEAD_BYTES


def _read(stream: BinaryIO, header: bytes) -> tuple[str, int]:
    """Read the rest of a record; return what is wrong with it and the length of its payload."""
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
