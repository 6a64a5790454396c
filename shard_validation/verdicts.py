"""The verdict on one shard, or a place to go on from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from shard_validation.reasons import Reason
from shard_validation.statistics import ShardStatistics
from shared.shard_names import DataFormat

Compression = Literal["", "gzip", "zlib"]


@dataclass(frozen=True, kw_only=True)
class ShardVerdict:
    """What validation says about one content."""

    shard: str
    accepted: bool
    num_records: int
    """Whole records that were read; all of them where the shard is accepted."""
    size_bytes: int
    crc32c: str
    """Of the whole content as it is stored: eight lower-case hexadecimal digits."""
    data_format: DataFormat | None
    """By content; None where it is no shard."""
    compression: Compression = ""
    reasons: tuple[Reason, ...] = ()
    """In the order of the content; empty exactly where the shard is accepted."""
    num_reasons: int = 0
    """Found in all; `reasons` holds the first of them."""
    statistics: ShardStatistics

    @property
    def content_format(self) -> str:
        """What the shards of a version have in common, in words: ``tfrecord gzip``; empty for what is no shard."""
        return f"{self.data_format or ''} {self.compression}".strip()

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready members, as ``landfall validate --json`` prints them."""
        return {
            "shard": self.shard,
            "verdict": "accepted" if self.accepted else "rejected",
            "num_records": self.num_records,
            "size_bytes": self.size_bytes,
            "crc32c": self.crc32c,
            "data_format": self.data_format,
            "compression": self.compression,
            "reasons": [r.to_json() for r in self.reasons],
            "num_reasons": self.num_reasons,
            "statistics": self.statistics.to_json(),
        }


@dataclass(frozen=True, kw_only=True)
class Paused:
    """Validation stopped where it can go on: hand the checkpoint back, with a source of the same content."""

    checkpoint: Mapping[str, Any]
    """A few kilobytes of JSON-ready members. Store it under the identity of the content (url and ETag)."""
    bytes_done: int
