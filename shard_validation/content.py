"""What a file is, by its first bytes: the format is decided by content and only checked against the name."""

from __future__ import annotations

from dataclasses import dataclass

from shard_validation.images import known_content
from shard_validation.reason_codes import ReasonCode
from shard_validation.reasons import Fault
from shard_validation.verdicts import Compression
from shared.record_framing import HEADER_BYTES, masked_crc32c
from shared.shard_names import DataFormat

HEAD_BYTES = 512
"""That are looked at; leading blanks of a text included."""
PARQUET_MAGIC = b"PAR1"
PARQUET_ENCRYPTED_MAGIC = b"PARE"
_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True, kw_only=True)
class Content:
    """What the first bytes say."""

    data_format: DataFormat | None
    """None: no shard at all."""
    compression: Compression = ""
    seen: str = ""
    """In words."""


def recognise(head: bytes) -> Content:
    """Return what a file is. A file that is nothing well known is taken for a TFRecord shard, maybe a damaged one."""
    if _is_record_header(head):
        return Content(data_format="tfrecord", seen="a TFRecord shard")
    if head.startswith((PARQUET_MAGIC, PARQUET_ENCRYPTED_MAGIC)):
        return Content(data_format="parquet", seen="a Parquet shard")
    if head.startswith(_GZIP_MAGIC):
        return Content(data_format="tfrecord", compression="gzip", seen="GZIP data")
    if _is_zlib_header(head):
        return Content(data_format="tfrecord", compression="zlib", seen="ZLIB data")
    if words := known_content(head):
        return Content(data_format=None, seen=words)
    return Content(data_format="tfrecord", seen="a TFRecord shard")


def name_fault(name: str, content: Content) -> Fault | None:
    """Return the contradiction between a name's suffix and the content, None where there is none."""
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


def _is_record_header(head: bytes) -> bool:
    return len(head) >= HEADER_BYTES and masked_crc32c(head[:8]) == int.from_bytes(head[8:HEADER_BYTES], "little")


def _is_zlib_header(head: bytes) -> bool:
    """Deflate with a window of 32 kB and no dictionary, its check bits right (RFC 1950, 2.2)."""
    return len(head) > 1 and head[0] == 0x78 and head[1] & 0x20 == 0 and int.from_bytes(head[:2], "big") % 31 == 0  # noqa: PLR2004
