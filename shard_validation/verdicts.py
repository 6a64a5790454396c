"""The outcome of a validation, and the task that collects what leads to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from crc32c import crc32c

from shard_validation.read_ahead import read_ahead
from shard_validation.reasons import Fault, Reason
from shard_validation.requirements import DataRequirements
from shard_validation.sources import ShardSource
from shard_validation.statistics import ShardStatistics
from shared.shard_names import DataFormat

Compression = Literal["", "gzip", "zlib"]
Progress = Callable[[int], None]
"""Takes the number of bytes of the shard that were processed since the last call."""
ShouldPause = Callable[[], bool]


@dataclass(frozen=True, kw_only=True)
class ShardVerdict:
    """The verdict on one content of a shard."""

    shard: str
    accepted: bool
    num_records: int
    """Whole records that were read; all of them where the shard is accepted."""
    size_bytes: int
    crc32c: str
    """CRC32C of the content as it is stored: eight lower-case hexadecimal digits."""
    data_format: DataFormat | None
    """By content; None where it is not a shard."""
    compression: Compression = ""
    reasons: tuple[Reason, ...] = ()
    """In the order of the content; empty if and only if the shard is accepted."""
    num_reasons: int = 0
    """All that were found; `reasons` holds the first of them."""
    statistics: ShardStatistics

    @property
    def content_format(self) -> str:
        """Format and compression in words, such as ``tfrecord gzip``; empty where the content is not a shard."""
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
    """A validation that can be resumed: pass the checkpoint back, with a source of the same content."""

    checkpoint: Mapping[str, Any]
    """A few kilobytes of JSON-ready members. Store it under the identity of the content (URL and ETag)."""
    bytes_done: int


def _ignore(_: int) -> None:
    """Ignore progress."""


def _never() -> bool:
    return False


@dataclass(kw_only=True)
class Task:
    """One validation in progress, as every format sees it: the shard, its requirements, what was found so far."""

    source: ShardSource
    requirements: DataRequirements
    progress: Progress = _ignore
    should_pause: ShouldPause = _never
    out_of_time: ShouldPause = _never
    """Whether to reject what cannot pause, a compressed stream or a row group, because it takes too long."""
    checkpoint: Mapping[str, Any] | None = None
    """Where to resume; written by the same format for the same content."""
    data_format: DataFormat | None = None
    compression: Compression = ""
    crc: int = 0
    """CRC32C of the content so far."""
    statistics: ShardStatistics = field(default_factory=ShardStatistics)
    reasons: list[Reason] = field(default_factory=list)
    num_reasons: int = 0

    def report(self, fault: Fault, record_index: int | None = None, byte_offset: int | None = None) -> None:
        """Count a fault, and keep it as a reason while there are fewer than ``limits.max_reasons``."""
        self.num_reasons += 1
        if len(self.reasons) < self.requirements.limits.max_reasons:
            self.reasons.append(fault.at(self.source.name, record_index=record_index, byte_offset=byte_offset))

    def take_content_crc(self, position: int) -> int:
        """Take the CRC of the content from ``position``; return the end, or where a pause was requested."""
        for chunk in read_ahead(self.source, position):
            self.crc = crc32c(chunk, self.crc)
            position += len(chunk)
            self.progress(len(chunk))
            if position < self.source.size_bytes and self.should_pause():
                break
        return position

    def verdict(self) -> ShardVerdict:
        """Return the verdict from what was found."""
        return ShardVerdict(
            shard=self.source.name,
            accepted=not self.num_reasons,
            num_records=self.statistics.num_records,
            size_bytes=self.source.size_bytes,
            crc32c=f"{self.crc:08x}",
            data_format=self.data_format,
            compression=self.compression,
            reasons=tuple(self.reasons),
            num_reasons=self.num_reasons,
            statistics=self.statistics,
        )

    def findings(self) -> dict[str, Any]:
        """Return what was found so far, JSON-ready, for a checkpoint."""
        return {
            "shard": self.source.name,
            "size_bytes": self.source.size_bytes,
            "crc": self.crc,
            "statistics": self.statistics.to_json(),
            "reasons": [r.to_json() for r in self.reasons],
            "num_reasons": self.num_reasons,
        }

    def restore(self, findings: Mapping[str, Any]) -> None:
        """Continue from what `findings` returned. Raises ValueError where it is from another content."""
        seen = (findings["shard"], findings["size_bytes"])
        if seen != (self.source.name, self.source.size_bytes):
            raise ValueError(
                f"the checkpoint is from {seen[0]} ({seen[1]} bytes), not from {self.source.name} "
                f"({self.source.size_bytes} bytes); start the validation without it"
            )
        self.crc = findings["crc"]
        self.statistics = ShardStatistics.from_json(findings["statistics"])
        self.reasons = [Reason.from_json(r) for r in findings["reasons"]]
        self.num_reasons = findings["num_reasons"]
