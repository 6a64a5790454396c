"""Statistics of the data, merged over shards in any order."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from shard_validation import FeatureStatistics, ShardStatistics, encode_example, merge_statistics
from shard_validation.validate import MAX_DISTINCT
from shared.manifest import FeatureSpec
from tests.support.shards import LABEL, framed, image_bytes, labelled, verdict_on

IMAGE = FeatureSpec(name="image", kind="bytes", encoding="image")


def test_labels_images_and_ranges() -> None:
    """Labels and image sizes are counted, values have a range."""
    payloads = [
        encode_example({"label": i % 3, "image": image_bytes("PNG", (8 + i % 2, 8)), "x": i / 2, "color": "red"})
        for i in range(6)
    ]
    specs = (FeatureSpec(name="x", kind="float"), FeatureSpec(name="color", kind="bytes", encoding="text"))
    features = verdict_on(framed(payloads), LABEL, IMAGE, *specs).statistics.features
    assert {"0": 2, "1": 2, "2": 2} == features["label"].histogram
    assert {"8x8x3": 3, "9x8x3": 3} == features["image"].histogram
    assert (0.0, 2.5) == (features["x"].minimum, features["x"].maximum)
    assert {"red": 6} == features["color"].histogram
    assert [6, 6, 6, 6] == [f.num_present for f in features.values()]


def test_values_that_are_too_many() -> None:
    """A feature of distinct values, such as an id, fills its histogram; further values are only counted."""
    statistics = verdict_on(
        framed([labelled(id=i) for i in range(2000)]), FeatureSpec(name="id", kind="int64")
    ).statistics
    ids = statistics.features["id"]
    assert (MAX_DISTINCT, 2000 - MAX_DISTINCT) == (len(ids.histogram), ids.other)
    assert (0, 1999, 2000) == (ids.minimum, ids.maximum, ids.num_present)


def test_rejected_values_are_not_counted() -> None:
    """Rejected values do not enter the statistics."""
    statistics = verdict_on(framed([labelled(1), labelled(77)]), LABEL).statistics
    assert {"1": 1} == statistics.features["label"].histogram
    assert 1 == statistics.features["label"].maximum


@given(labels=st.lists(st.integers(0, 9), min_size=1, max_size=60), cut=st.integers(0, 60))
def test_merged(labels: list[int], cut: int) -> None:
    """Merged statistics of two shards equal those of one with all records, in either order, and through JSON."""
    parts = [labels[:cut] or [0], labels[cut:] or [0]]
    whole = verdict_on(framed([labelled(label) for part in parts for label in part]), LABEL).statistics
    both = [verdict_on(framed([labelled(label) for label in part]), LABEL).statistics for part in parts]
    assert whole == merge_statistics(both)
    assert whole.to_json() == merge_statistics(reversed(both)).to_json()
    assert whole == ShardStatistics.from_json(json.loads(json.dumps(whole.to_json())))


def test_merging_full_histograms() -> None:
    """Values that do not fit a merged histogram are counted as other: no record is lost."""
    first, second = FeatureStatistics(), FeatureStatistics()
    for i in range(MAX_DISTINCT):
        first.count(f"a{i}")
        second.count(f"b{i}", 2)
    first.merge(second)
    assert 3 * MAX_DISTINCT == sum(first.histogram.values()) + first.other
