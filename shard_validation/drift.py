"""How far a version's data moved away from those that the current model was trained on.

Labels: total variation distance of the two histograms, half the sum of the absolute differences of the shares.
It is the share of records whose label would have to change; 0 for equal, 1 for disjoint. Two samples of the same
distribution differ by chance, by sqrt(2/pi) standard deviations of each share on average: that much is allowed on
top of the pipeline's threshold, so that small versions do not cry wolf.
Counts: the relative change of a split's number of records.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from shard_validation.reason_codes import ReasonCode
from shard_validation.reasons import Reason
from shard_validation.requirements import DataRequirements, DriftAction
from shard_validation.statistics import ShardStatistics, merge_statistics


@dataclass(frozen=True, kw_only=True)
class VersionStatistics:
    """Of a version, by split: what the manifest keeps."""

    splits: Mapping[str, ShardStatistics] = field(default_factory=dict)

    @classmethod
    def of(cls, shards: Iterable[tuple[str, ShardStatistics]]) -> Self:
        """Merge shards' statistics, each with its split."""
        by_split: dict[str, list[ShardStatistics]] = {}
        for split, statistics in shards:
            by_split.setdefault(split, []).append(statistics)
        return cls(splits={split: merge_statistics(parts) for split, parts in sorted(by_split.items())})

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready members, for ``Manifest.statistics``."""
        return {"splits": {split: statistics.to_json() for split, statistics in self.splits.items()}}

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote; nothing at all where the manifest kept none."""
        return cls(splits={k: ShardStatistics.from_json(v) for k, v in members.get("splits", {}).items()})


@dataclass(frozen=True, kw_only=True)
class DriftMeasure:
    """One figure of one split."""

    code: ReasonCode
    split: str
    value: float
    threshold: float
    """Of the pipeline, and what chance explains."""
    message: str

    @property
    def exceeds(self) -> bool:
        """Whether the threshold is passed."""
        return self.value > self.threshold


@dataclass(frozen=True, kw_only=True)
class Drift:
    """All figures, and what to do about those that exceed their threshold."""

    measures: tuple[DriftMeasure, ...]
    action: DriftAction

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """What exceeds its threshold; they block where `action` is ``block``, else people are told."""
        return tuple(
            Reason(
                code=m.code,
                shard=m.split,
                expected=f"at most {m.threshold:.4g}",
                seen=f"{m.value:.4g}",
                message=m.message,
            )
            for m in self.measures
            if m.exceeds
        )

    @property
    def blocks(self) -> bool:
        """Whether the version must not be trained on."""
        return self.action == "block" and bool(self.reasons)


def measure_drift(current: VersionStatistics, reference: VersionStatistics, requirements: DataRequirements) -> Drift:
    """Compare a version with the one that the current model was trained on; splits that either lacks are left out."""
    policy = requirements.drift
    if policy.action == "ignore":
        return Drift(measures=(), action=policy.action)
    measures: list[DriftMeasure] = []
    for split in sorted(set(current.splits) & set(reference.splits)):
        pair = current.splits[split], reference.splits[split]
        measures += _count_drift(split, *pair, policy.max_count_change)
        measures += _label_drift(split, *pair, requirements.label, policy.max_label_distance)
    return Drift(measures=tuple(measures), action=policy.action)


def _count_drift(
    split: str, current: ShardStatistics, reference: ShardStatistics, threshold: float
) -> Iterator[DriftMeasure]:
    if reference.num_records:
        change = abs(current.num_records - reference.num_records) / reference.num_records
        yield DriftMeasure(
            code=ReasonCode.DRIFT_COUNT,
            split=split,
            value=change,
            threshold=threshold,
            message=f"split {split}: {current.num_records} records should be within {threshold:.0%} of the "
            f"{reference.num_records} that the current model was trained on, changed by {change:.0%}",
        )


def _label_drift(
    split: str, current: ShardStatistics, reference: ShardStatistics, label: str | None, threshold: float
) -> Iterator[DriftMeasure]:
    if label is None or label not in current.features or label not in reference.features:
        return
    now, before = current.features[label], reference.features[label]
    if now.other or before.other or not now.histogram or not before.histogram:
        return
    distance, by_chance = total_variation(now.histogram, before.histogram)
    yield DriftMeasure(
        code=ReasonCode.DRIFT_LABELS,
        split=split,
        value=distance,
        threshold=threshold + by_chance,
        message=f"split {split}: labels ({label}) should be distributed as in the data of the current model, "
        f"total variation distance at most {threshold:.3f} (and {by_chance:.3f} by chance), was {distance:.3f}",
    )


def total_variation(first: Mapping[str, int], second: Mapping[str, int]) -> tuple[float, float]:
    """Return the distance of two histograms that are not empty, and how much of it chance alone is worth."""
    num_first, num_second = sum(first.values()), sum(second.values())
    distance = by_chance = 0.0
    for value in set(first) | set(second):
        times = first.get(value, 0), second.get(value, 0)
        distance += abs(times[0] / num_first - times[1] / num_second)
        share = sum(times) / (num_first + num_second)
        by_chance += math.sqrt(2 / math.pi * share * (1 - share) * (1 / num_first + 1 / num_second))
    return distance / 2, by_chance / 2
