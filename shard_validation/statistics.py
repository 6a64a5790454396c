"""Statistics of the data: collected record by record, merged over shards and splits, stored with the manifest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

MAX_DISTINCT = 1024
"""Distinct values that a histogram keeps; values that appear later are only counted, in `other`."""


@dataclass(kw_only=True)
class FeatureStatistics:
    """Statistics of one feature over the records that have it."""

    num_present: int = 0
    histogram: dict[str, int] = field(default_factory=dict)
    """Value of a scalar int64 or short text → records. Images: ``width x height x channels`` → records."""
    other: int = 0
    """Records whose value appeared after the histogram was full."""
    minimum: float | None = None
    maximum: float | None = None
    """Range of numeric values; for images and other bytes, of their sizes in bytes."""

    def count(self, value: str, times: int = 1) -> None:
        """Count a value."""
        if value in self.histogram or len(self.histogram) < MAX_DISTINCT:
            self.histogram[value] = self.histogram.get(value, 0) + times
        else:
            self.other += times

    def widen(self, minimum: float | None, maximum: float | None) -> None:
        """Extend the range to include both values."""
        if minimum is not None and (self.minimum is None or minimum < self.minimum):
            self.minimum = minimum
        if maximum is not None and (self.maximum is None or maximum > self.maximum):
            self.maximum = maximum

    def merge(self, other: FeatureStatistics) -> None:
        """Add the statistics of another shard."""
        self.num_present += other.num_present
        self.other += other.other
        for value, times in other.histogram.items():
            self.count(value, times)
        self.widen(other.minimum, other.maximum)


@dataclass(kw_only=True)
class ShardStatistics:
    """Statistics of one shard, or of several merged."""

    num_records: int = 0
    num_bytes: int = 0
    """Bytes of the payloads (Parquet: of the uncompressed pages)."""
    features: dict[str, FeatureStatistics] = field(default_factory=dict)

    def feature(self, name: str) -> FeatureStatistics:
        """Return the statistics of a feature, added on first use."""
        return self.features.setdefault(name, FeatureStatistics())

    def merge(self, other: ShardStatistics) -> None:
        """Add the statistics of another shard."""
        self.num_records += other.num_records
        self.num_bytes += other.num_bytes
        for name, statistics in other.features.items():
            self.feature(name).merge(statistics)

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready members, sorted by name and value."""
        return {
            "num_records": self.num_records,
            "num_bytes": self.num_bytes,
            "features": {
                name: {**vars(f), "histogram": dict(sorted(f.histogram.items()))}
                for name, f in sorted(self.features.items())
            },
        }

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote. Raises KeyError or TypeError for anything else."""
        features = {
            name: FeatureStatistics(**{**values, "histogram": dict(values["histogram"])})
            for name, values in members["features"].items()
        }
        return cls(num_records=members["num_records"], num_bytes=members["num_bytes"], features=features)


@dataclass(frozen=True, kw_only=True)
class VersionStatistics:
    """Statistics of a dataset version by split, as the manifest stores them."""

    splits: Mapping[str, ShardStatistics] = field(default_factory=dict)

    @classmethod
    def of(cls, shards: Iterable[tuple[str, ShardStatistics]]) -> Self:
        """Merge the statistics of shards, each with the name of its split."""
        by_split: dict[str, list[ShardStatistics]] = {}
        for split, statistics in shards:
            by_split.setdefault(split, []).append(statistics)
        return cls(splits={split: merge_statistics(parts) for split, parts in sorted(by_split.items())})

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready members, for ``Manifest.statistics``."""
        return {"splits": {split: statistics.to_json() for split, statistics in self.splits.items()}}

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote; a manifest without statistics gives none."""
        return cls(splits={k: ShardStatistics.from_json(v) for k, v in members.get("splits", {}).items()})


def merge_statistics(parts: Iterable[ShardStatistics]) -> ShardStatistics:
    """Return the sum of the parts, which stay unchanged; their order matters only once a histogram is full."""
    total = ShardStatistics()
    for part in parts:
        total.merge(part)
    return total
