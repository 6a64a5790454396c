"""Data drift: how far a version differs from the one that the current model was trained on.

Labels: total variation distance of the two histograms, half the sum of the absolute differences of the shares.
It is the share of records whose label would have to change: 0 for equal, 1 for disjoint histograms. Two samples of
one distribution differ by chance, on average by sqrt(2/pi) standard deviations of each share. That much is added to
the threshold of the pipeline, so that small versions cause no false alarms.
Counts: the relative change of a split's number of records.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from shard_validation.reasons import Reason, ReasonCode
from shard_validation.requirements import DataRequirements, DriftAction
from shard_validation.sets import VersionStatistics
from shard_validation.validate import ShardStatistics


@dataclass(frozen=True, kw_only=True)
class DriftMeasure:
    """One figure of one split."""

    code: ReasonCode
    split: str
    value: float
    threshold: float
    """The pipeline's threshold plus the difference that chance explains."""
    message: str

    @property
    def exceeds(self) -> bool:
        """Whether the value is above the threshold."""
        return self.value > self.threshold


@dataclass(frozen=True, kw_only=True)
class Drift:
    """All measures, and the pipeline's action for those that exceed their threshold."""

    measures: tuple[DriftMeasure, ...]
    action: DriftAction

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """The measures that exceed their threshold; they block where `action` is ``block``, otherwise they warn."""
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
        """Whether drift forbids training on the version."""
        return self.action == "block" and bool(self.reasons)


def measure_drift(current: VersionStatistics, reference: VersionStatistics, requirements: DataRequirements) -> Drift:
    """Compare a version with the one that the current model was trained on, in the splits that both have."""
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
            message=f"split {split}: {current.num_records} records, a change of {change:.0%} from the "
            f"{reference.num_records} that the current model was trained on (max_count_change is {threshold:.0%})",
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
        message=f"split {split}: labels ({label}) are distributed differently than in the current model's training "
        f"data: distance {distance:.3f}, max_label_distance is {threshold:.3f} (plus {by_chance:.3f} by chance)",
    )


def total_variation(first: Mapping[str, int], second: Mapping[str, int]) -> tuple[float, float]:
    """Return the distance of two non-empty histograms, and the part of it that chance explains."""
    num_first, num_second = sum(first.values()), sum(second.values())
    distance = by_chance = 0.0
    for value in set(first) | set(second):
        times = first.get(value, 0), second.get(value, 0)
        distance += abs(times[0] / num_first - times[1] / num_second)
        share = sum(times) / (num_first + num_second)
        by_chance += math.sqrt(2 / math.pi * share * (1 - share) * (1 / num_first + 1 / num_second))
    return distance / 2, by_chance / 2
