"""What a file is, by its name and by its first bytes: content decides, and the name must not contradict it."""

from __future__ import annotations

from dataclasses import dataclass

from shard_validation.reasons import Fault, Reason, ReasonCode, shown
from shard_validation.verdicts import Compression
from shared.record_framing import HEADER_BYTES, masked_crc32c
from shared.shard_names import DataFormat, ShardNameError, parse_shard_name

HEAD_BYTES = 512
"""Bytes at the start of a file that decide what it is; a text may begin with blanks."""
JPEG_MAGIC = b"\xff\xd8\xff"
PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
PARQUET_MAGIC = b"PAR1"
PARQUET_ENCRYPTED_MAGIC = b"PARE"
GZIP_MAGIC = b"\x1f\x8b"

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


@dataclass(frozen=True, kw_only=True)
class Content:
    """What the first bytes of a file say."""

    data_format: DataFormat | None
    """None where the file is not a shard."""
    compression: Compression = ""
    seen: str = ""
    """A description for messages."""


def recognise(head: bytes) -> Content:
    """Return what a file is. Unknown content counts as a TFRecord shard, which may be a damaged one."""
    if _is_record_header(head):
        return Content(data_format="tfrecord", seen="a TFRecord shard")
    if head.startswith((PARQUET_MAGIC, PARQUET_ENCRYPTED_MAGIC)):
        return Content(data_format="parquet", seen="a Parquet shard")
    if head.startswith(GZIP_MAGIC):
        return Content(data_format="tfrecord", compression="gzip", seen="GZIP data")
    if _is_zlib_header(head):
        return Content(data_format="tfrecord", compression="zlib", seen="ZLIB data")
    if words := _known_content(head):
        return Content(data_format=None, seen=words)
    return Content(data_format="tfrecord", seen="a TFRecord shard")


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


def check_name(name: str) -> Reason | None:
    """Return why a file name (without folders) is not a shard name, or None where it is one."""
    try:
        parse_shard_name(name)
    except ShardNameError as error:
        return Reason(
            code=ReasonCode.NAME_NOT_UNDERSTOOD,
            shard=shown(name),
            message=shown(str(error)),
            expected="a name like train-00003-of-00128.tfrecord",
            seen=shown(name),
        )
    return None


def _known_content(content: bytes) -> str | None:
    for magic, words in _KNOWN_CONTENT:
        if content.startswith(magic):
            return words
    text = content[:64].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    return next((words for magic, words in _KNOWN_TEXT if text.startswith(magic)), None)


def _is_record_header(head: bytes) -> bool:
    return len(head) >= HEADER_BYTES and masked_crc32c(head[:8]) == int.from_bytes(head[8:HEADER_BYTES], "little")


def _is_zlib_header(head: bytes) -> bool:
    """Whether this is deflate with a 32 kB window, no dictionary and correct check bits (RFC 1950, 2.2)."""
    return len(head) > 1 and head[0] == 0x78 and head[1] & 0x20 == 0 and int.from_bytes(head[:2], "big") % 31 == 0  # noqa: PLR2004
