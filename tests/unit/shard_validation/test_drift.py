"""Drift: distance of labels and change of counts, against the pipeline's thresholds."""

from __future__ import annotations

import pytest

from shard_validation import (
    DataRequirements,
    DriftPolicy,
    FeatureStatistics,
    ShardStatistics,
    VersionStatistics,
    measure_drift,
)
from shard_validation import (
    ReasonCode as Code,
)
from shard_validation.drift import total_variation
from tests.support.shards import LABEL


def version(**histogram: int) -> VersionStatistics:
    """Return a version of one split with these labels."""
    label = FeatureStatistics(num_present=sum(histogram.values()), histogram=histogram)
    return VersionStatistics(
        splits={"train": ShardStatistics(num_records=label.num_present, features={"label": label})}
    )


def requirements(action: str = "block") -> DataRequirements:
    """Return a policy of 10 % of labels and 50 % of records."""
    return DataRequirements(features=(LABEL,), drift=DriftPolicy(action=action))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("first", "second", "distance"),
    [
        ({"a": 10}, {"a": 20}, 0.0),
        ({"a": 10}, {"b": 10}, 1.0),
        ({"a": 50, "b": 50}, {"a": 75, "b": 25}, 0.25),
    ],
)
def test_total_variation(first: dict[str, int], second: dict[str, int], distance: float) -> None:
    """The distance is the share of records whose label would have to change."""
    assert distance == pytest.approx(total_variation(first, second)[0])


def test_nothing_drifted() -> None:
    """Equal distributions give no reason, whatever the action."""
    drift = measure_drift(version(a=1000, b=1000), version(a=1010, b=990), requirements())
    assert ((), False) == (drift.reasons, drift.blocks)
    assert [Code.DRIFT_COUNT, Code.DRIFT_LABELS] == [m.code for m in drift.measures]


def test_labels_drifted() -> None:
    """Labels beyond the threshold are reported with the distance, and block where the action is `block`."""
    drift = measure_drift(version(a=8000, b=2000), version(a=5000, b=5000), requirements())
    assert [Code.DRIFT_LABELS] == [r.code for r in drift.reasons]
    assert drift.blocks
    assert "distance 0.300" in drift.reasons[0].message


def test_small_versions_cause_no_false_alarm() -> None:
    """Chance explains a distance between small versions that would be drift between large ones."""
    assert () == measure_drift(version(a=7, b=3), version(a=5, b=5), requirements()).reasons


def test_counts_drifted() -> None:
    """A split that shrank by more than allowed is reported."""
    drift = measure_drift(version(a=400), version(a=1000), requirements())
    assert [Code.DRIFT_COUNT] == [r.code for r in drift.reasons]
    assert "400 records" in drift.reasons[0].message


def test_warning_does_not_block() -> None:
    """The action `warn` gives the reasons and does not block; `ignore` measures nothing."""
    changed = version(a=1), version(b=1000)
    warned = measure_drift(*changed, requirements("warn"))
    assert (True, False) == (bool(warned.reasons), warned.blocks)
    assert () == measure_drift(*changed, requirements("ignore")).measures


def test_labels_that_are_not_classes() -> None:
    """Histograms that overflowed are not compared: such labels are not classes."""
    current, reference = version(a=10), version(b=10)
    current.splits["train"].features["label"].other = 5
    assert [Code.DRIFT_COUNT] == [m.code for m in measure_drift(current, reference, requirements()).measures]


def test_through_the_manifest() -> None:
    """Statistics come back from the manifest as they were; a manifest without them gives no measures."""
    statistics = VersionStatistics.of([("train", s) for s in [*version(a=3).splits.values()] * 2])
    assert statistics == VersionStatistics.from_json(statistics.to_json())
    assert 6 == statistics.splits["train"].num_records
    assert () == measure_drift(statistics, VersionStatistics.from_json({}), requirements()).measures
