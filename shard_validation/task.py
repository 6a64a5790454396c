"""One validation under way: what all formats share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from shard_validation.reasons import Fault, Reason
from shard_validation.requirements import DataRequirements
from shard_validation.sources import ShardSource
from shard_validation.statistics import ShardStatistics
from shard_validation.verdicts import Compression, ShardVerdict
from shared.shard_names import DataFormat

Progress = Callable[[int], None]
"""Takes the number of bytes of the shard that were done since the last call."""
ShouldPause = Callable[[], bool]


def _ignore(_: int) -> None:
    """Tell nobody."""


def _never() -> bool:
    return False


@dataclass(kw_only=True)
class Task:
    """The shard, what is required of it, and what was found so far."""

    source: ShardSource
    requirements: DataRequirements
    progress: Progress = _ignore
    should_pause: ShouldPause = _never
    out_of_time: ShouldPause = _never
    """Whether what cannot be paused (a compressed stream, a row group) must be given up now, for good."""
    checkpoint: Mapping[str, Any] | None = None
    """Where to go on; made by the same format for the same content."""
    data_format: DataFormat | None = None
    compression: Compression = ""
    crc: int = 0
    """Of the content so far."""
    statistics: ShardStatistics = field(default_factory=ShardStatistics)
    reasons: list[Reason] = field(default_factory=list)
    num_reasons: int = 0

    def report(self, fault: Fault, record_index: int | None = None, byte_offset: int | None = None) -> None:
        """Take a fault down, the first of them with everything about them, all in the count."""
        self.num_reasons += 1
        if len(self.reasons) < self.requirements.limits.max_reasons:
            self.reasons.append(fault.at(self.source.name, record_index=record_index, byte_offset=byte_offset))

    def verdict(self) -> ShardVerdict:
        """Return what was found as the verdict."""
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
        """Go on from what `findings` returned. Raises ValueError where it is of another content."""
        seen = (findings["shard"], findings["size_bytes"])
        if seen != (self.source.name, self.source.size_bytes):
            raise ValueError(
                f"checkpoint should be of {self.source.name} ({self.source.size_bytes} bytes), was of {seen}"
            )
        self.crc = findings["crc"]
        self.statistics = ShardStatistics.from_json(findings["statistics"])
        self.reasons = [Reason.from_json(r) for r in findings["reasons"]]
        self.num_reasons = findings["num_reasons"]
