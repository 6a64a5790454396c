"""What `landfall status` prints."""

from __future__ import annotations

from typing import Any

from cli.status import describe_version, reason_text

REASON = {"code": "payload_crc", "message": "the payload's CRC is wrong", "record_index": 2, "byte_offset": 98}


def version(**members: Any) -> dict[str, Any]:
    """A version as the HTTP API describes it."""
    train = {
        "num_shards": 40,
        "accepted": 1,
        "num_missing": 39,
        "missing": [f"train-{i:05d}-of-00040" for i in range(1, 40)],
        "rejected": [{"shard": "train-00003-of-00040", "reasons": [REASON, REASON]}],
    }
    none_yet = {"num_shards": None, "accepted": 0, "num_missing": 1, "missing": ["validation-*"], "rejected": []}
    splits = {"train": train, "validation": none_yet}
    return {"dataset": "d", "version": "v", "generation": None, "splits": splits, "runs": [], **members}


def test_an_open_version_says_what_is_missing_and_rejected() -> None:
    """A long list is cut, and says how long it is."""
    lines = list(describe_version(version()))
    assert (
        ["d/v: open", "  train: 1 of 40 shards accepted"],
        "    rejected train-00003-of-00040: the payload's CRC is wrong [record 2, byte 98] (and 1 more)",
        "    … 19 more are missing",
        ["  validation: 0 of ? shards accepted", "    missing validation-*"],
    ) == (lines[:2], lines[2], lines[-3], lines[-2:])


def test_a_complete_version_says_since_when_and_its_runs() -> None:
    """Size, fingerprint and runs."""
    generation = {"closed_at": "2026-11-20T12:00:00.5Z", "num_shards": 3, "num_records": 1797, "fingerprint": "abc"}
    runs = [{"run_id": "r", "state": "running"}]
    assert [
        "d/v: complete since 2026-11-20T12:00:00, 3 shards, 1,797 records",
        "  fingerprint abc",
        "  run r: running",
    ] == list(describe_version(version(generation=generation, runs=runs, splits={})))


def test_a_split_says_what_its_data_look_like() -> None:
    """Sizes, how evenly labels are spread, and the range of every feature, a line each."""
    image = {"kind": "bytes", "minimum": 120, "maximum": 4160, "num_distinct": 1, "most_frequent": {"8x8x1": 90}}
    label = {"kind": "int64", "minimum": 0, "maximum": 9, "num_distinct": 2, "most_frequent": {"3": 60}}
    weight = {"kind": "float", "minimum": 0.25, "maximum": 1.5, "num_distinct": 0, "most_frequent": {}}
    features = {"image": image, "label": label, "weight": weight}
    statistics = {
        "num_records": 1437,
        "size_bytes": 163_840,
        "label_feature": "label",
        "labels": {"1": 30, "3": 60},
        "other_labels": 0,
        "features": {name: {**seen, "other": 0} for name, seen in features.items()},
    }
    split = {
        "num_shards": 1,
        "accepted": 1,
        "num_missing": 0,
        "missing": [],
        "rejected": [],
        "statistics": statistics,
    }
    assert [
        "d/v: open",
        "  train: 1 of 1 shards accepted",
        "    1,437 records, 160.0 KiB",
        "    image: always 8x8x1; 120 to 4,160 bytes",
        "    label: 2 labels, 1 (33.3%) to 3 (66.7%) of the records; 0 to 9",
        "    weight: 0.25 to 1.5",
    ] == list(describe_version(version(splits={"train": split})))


def test_drift_and_refusal_are_shown() -> None:
    """Every figure beside its threshold; what is too far off in words as well."""
    measures = [
        {"code": "drift_count", "split": "train", "value": 0.02, "threshold": 0.5, "exceeds": False},
        {"code": "drift_labels", "split": "train", "value": 0.4, "threshold": 0.1123, "exceeds": True},
    ]
    shown = version(
        splits={}, refusal=["too small"], drift=["labels moved"], drift_measures=measures, drift_reference="d/u"
    )
    assert [
        "d/v: open",
        "  refused as a set: too small",
        "  compared with d/u, on which the current model of that time was trained:",
        "    train count: 0.020, within 0.500",
        "    train labels: 0.400, TOO FAR 0.112",
        "    labels moved",
    ] == list(describe_version(shown))


def test_a_reason_without_a_place_has_none() -> None:
    """What concerns the whole shard names no record."""
    assert "it is empty" == reason_text([{"message": "it is empty", "record_index": None, "byte_offset": None}])
