"""What `status`, `run` and `submit` print and take."""

from __future__ import annotations

from typing import Any

import click
import pytest

from cli.runs import OverrideOption
from cli.runs import describe as describe_run
from cli.status import describe as describe_version
from cli.status import reason_text

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


def test_a_whole_version_says_since_when_and_its_runs() -> None:
    """Size, fingerprint and runs."""
    generation = {"closed_at": "2026-11-20T12:00:00.5Z", "num_shards": 3, "num_records": 1797, "fingerprint": "abc"}
    runs = [{"run_id": "r", "state": "running"}]
    assert [
        "d/v: whole since 2026-11-20T12:00:00, 3 shards, 1,797 records",
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


def test_drift_and_refusal_are_told() -> None:
    """Every figure beside its threshold; what is too far off in words as well."""
    measures = [
        {"code": "drift_count", "split": "train", "value": 0.02, "threshold": 0.5, "exceeds": False},
        {"code": "drift_labels", "split": "train", "value": 0.4, "threshold": 0.1123, "exceeds": True},
    ]
    told = version(
        splits={}, refusal=["too small"], drift=["labels moved"], drift_measures=measures, drift_reference="d/u"
    )
    assert [
        "d/v: open",
        "  refused as a set: too small",
        "  compared with d/u, which the then current model was trained on:",
        "    train count: 0.020, within 0.500",
        "    train labels: 0.400, TOO FAR 0.112",
        "    labels moved",
    ] == list(describe_version(told))


def test_a_run_says_how_it_ended_and_who_knows() -> None:
    """Reason, recipients and the end of the log."""
    run = {
        "run_id": "r",
        "state": "failed",
        "state_since": "12:00",
        "dataset": "d",
        "version": "v",
        "generation": 1,
        "attempt": 1,
        "reason": "exit 1",
        "model_name": None,
        "metrics": {},
        "notifications": [{"recipient": "topic", "outcome": "failed", "state": "sent"}],
        "log_tail": "one\ntwo",
    }
    assert [
        "r: failed since 12:00",
        "  of d/v (generation 1), attempt 1",
        "  reason: exit 1",
        "  topic about failed: sent",
        "  the end of the log:",
        "    one",
        "    two",
    ] == list(describe_run(run))


def test_a_reason_without_a_place_has_none() -> None:
    """What concerns the whole shard names no record."""
    assert "it is empty" == reason_text([{"message": "it is empty", "record_index": None, "byte_offset": None}])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("epochs=3", ("epochs", 3)),
        ("learning_rate=0.01", ("learning_rate", 0.01)),
        ("optimizer=adam", ("optimizer", "adam")),
        ("note=a=b", ("note", "a=b")),
        ("date=2026-11-20", ("date", "2026-11-20")),
    ],
)
def test_overrides_are_read_as_numbers_where_they_are(text: str, expected: tuple[str, object]) -> None:
    """The API is strict about types; a date stays the text that was typed."""
    assert expected == OverrideOption().convert(text, None, None)


@pytest.mark.parametrize("text", ["epochs", "=3"])
def test_an_override_without_key_or_value_is_refused(text: str) -> None:
    """The error shows the form."""
    with pytest.raises(click.BadParameter, match="expected key=value, such as epochs=3"):
        OverrideOption().convert(text, None, None)
