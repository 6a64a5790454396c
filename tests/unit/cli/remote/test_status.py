"""Status and why: what there is of a version or run, how it came about, what it waits for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from cli.errors import CliError
from cli.main import landfall
from cli.options import TwinAddress
from cli.remote.status import describe_version, reason_text, show_history, show_trace
from shared.traces import place_of_version
from tests.unit.cli.fake_function_app import FunctionApp, served

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
        "    rejected train-00003-of-00040: the payload's CRC is wrong (and 1 more)",
        "    … 18 more are missing",
        ["  validation: 0 of ? shards accepted", "    missing validation-*"],
    ) == (lines[:2], lines[2], lines[-3], lines[-2:])


def test_a_rejected_shard_is_named_once() -> None:
    """Its reason begins with its name, and it is not among those that are missing."""
    shard = "train-00001-of-00002.tfrecord"
    message = f"{shard}, record 2 at byte 98: expected masked CRC 1, got 2"
    split = {
        "num_shards": 2,
        "accepted": 1,
        "num_missing": 1,
        "missing": ["train-00001-of-00002"],
        "rejected": [{"shard": shard, "reasons": [REASON | {"message": message}]}],
    }
    assert ["d/v: open", "  train: 1 of 2 shards accepted", f"    rejected {message}"] == list(
        describe_version(version(splits={"train": split}))
    )


def test_a_complete_version_says_since_when_and_its_runs() -> None:
    """Size, fingerprint and runs."""
    generation = {"closed_at": "2026-11-20T12:00:00.5Z", "num_shards": 3, "num_records": 1797, "fingerprint": "abc"}
    runs = [{"run_id": "r", "state": "running"}]
    assert [
        "d/v: complete since 2026-11-20 12:00:00 UTC, 3 shards, 1,797 records",
        "  fingerprint abc",
        "  run r: running",
    ] == list(describe_version(version(generation=generation, runs=runs, splits={})))


def test_a_version_says_what_its_run_waits_for_and_why_it_was_dropped() -> None:
    """Behind the state; the reason of a run that was submitted is shown by `landfall run`."""
    place = "waits for run landfall-w-a1; 3 versions before it"
    runs = [
        {"run_id": "landfall-x-a1", "state": "planned", "waiting": place},
        {"run_id": "landfall-y-a1", "state": "suppressed", "waiting": None, "reason": "digits/v5 is newer"},
        {"run_id": "landfall-z-a1", "state": "failed", "waiting": None, "reason": "out of memory"},
    ]
    assert [
        f"  run landfall-x-a1: planned: {place}",
        "  run landfall-y-a1: suppressed: digits/v5 is newer",
        "  run landfall-z-a1: failed",
    ] == list(describe_version(version(runs=runs)))[-3:]


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
    statistics.update(labels={"1": 45, "3": 45})
    features["weight"].update(maximum=0.25)
    statistics["features"] = {name: {**seen, "other": 0} for name, seen in features.items()}
    assert ["    label: 2 labels, each 50.0% of the records; 0 to 9", "    weight: 0.25"] == list(
        describe_version(version(splits={"train": split}))
    )[-2:]


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


def test_a_history_is_printed_with_what_is_awaited(capsys: pytest.CaptureFixture[str]) -> None:
    """Lines of parts name them without repeating the subject; brackets in a reason are no markup."""
    lines = [
        {
            "at": "2026-11-20T12:00:00Z",
            "subject": "digits/v1/x",
            "action": "event_suppressed",
            "reason": "[red] gone",
        },
        {"at": "2026-11-20T12:00:01Z", "subject": "digits/v1", "action": "version_closed", "reason": "whole"},
    ]
    show_history(
        {"kind": "version", "subject": "digits/v1", "lines": lines, "num_omitted": 3, "awaited": ["its run"]}
    )
    printed = capsys.readouterr().out
    wanted = ["version digits/v1", "3 older entries", "x: [red] gone", "12:00:01", "awaited now:\n  its run"]
    assert [] == [words for words in wanted if words not in printed]


def test_repetitions_are_one_line_with_their_number(capsys: pytest.CaptureFixture[str]) -> None:
    """Azure ML reports a run several times a second. A reason that begins with the part's name does not repeat it."""
    line = {"subject": "v/x", "action": "event_suppressed", "reason": "x: old"}
    lines = [{**line, "at": f"2026-11-20T12:00:0{second}Z"} for second in range(3)]
    show_history({"kind": "version", "subject": "v", "lines": lines, "num_omitted": 0, "awaited": []})
    printed = " ".join(capsys.readouterr().out.split())
    assert "12:00:00 UTC event_suppressed x: old (3 times, the last 2026-11-20 12:00:02 UTC) nothing" in printed


def test_a_history_at_its_end_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is awaited any more."""
    show_history({"kind": "run", "subject": "r", "lines": [], "num_omitted": 0, "awaited": []})
    assert "nothing is awaited" in capsys.readouterr().out


RUN_ID = "landfall-digits-20261121-232818-2244c0be11af-a1"
HISTORY: dict[str, Any] = {
    "kind": "version",
    "subject": "digits/v1",
    "num_omitted": 0,
    "awaited": [f"the end of run {RUN_ID}, and of a good many other things besides"],
    "lines": [
        {
            "at": "2026-11-20T12:00:00Z",
            "subject": RUN_ID,
            "action": "request_suppressed",
            "reason": "another handler is at it, until 2026-11-20 12:03:00 UTC at most; then another one may take it",
        }
    ],
}


def test_a_file_gets_a_line_for_each_line_of_a_history(capsys: pytest.CaptureFixture[str]) -> None:
    """A search by grep finds whole lines, without spaces at their ends."""
    show_history(HISTORY)
    text = f"{RUN_ID}: {HISTORY['lines'][0]['reason']}"
    assert [
        "version digits/v1",
        f"2026-11-20 12:00:00 UTC  request_suppressed  {text}",
        "awaited now:",
        f"  {HISTORY['awaited'][0]}",
    ] == capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_terminal_cuts_no_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    """A run's name can be copied from a terminal of any usual width, and no line is wider than it."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(columns))
    show_history(HISTORY)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert (2, []) == (sum(RUN_ID in line for line in lines), [line for line in lines if len(line) > columns])


def test_a_deployments_trace_is_a_query(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its spans are in Application Insights; the trace of a run is that of its version."""
    monkeypatch.setattr("cli.remote.status.running_twin_of_this_clone", lambda: None)
    app = FunctionApp(body={"run_id": "landfall-x-a1", "dataset": "digits", "version": "v1"})
    for subject in ("digits/v1/train-00000-of-00002.tfrecord", "landfall-x-a1"):
        show_trace(app.client(), subject, as_json=False)
        assert f'OperationId == "{place_of_version("digits/v1").trace_id}"' in capsys.readouterr().out
        show_trace(app.client(), subject, as_json=True)
        assert {"query"} == json.loads(capsys.readouterr().out).keys()


def test_the_twins_trace_is_a_tree(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Spans whose parent is not there yet stand below the first line; a version without a trace is an error."""
    twin = TwinAddress(
        functions_url="https://app.example",
        function_key="k",
        data_connection="",
        host_connection="",
        traces=tmp_path,
    )
    monkeypatch.setattr("cli.remote.status.running_twin_of_this_clone", lambda: twin)
    place = place_of_version("digits/v1")
    line = {
        "name": "BlobCreated",
        "context": {"span_id": "0x00000000000000aa"},
        "parent_id": f"0x{place.span_id}",
        "start_time": "2026-11-20T12:00:00.000000Z",
        "end_time": "2026-11-20T12:00:00.024000Z",
        "status": {"status_code": "ERROR", "description": "\x1b[2Jno"},
        "attributes": {"landfall.dataset_version": "digits/v1", "landfall.shard": "train-00000-of-00002"},
    }
    (tmp_path / f"{place.trace_id}.jsonl").write_text(f"{json.dumps(line)}\n" * 2)
    show_trace(FunctionApp().client(), "digits/v1", as_json=False)
    assert [
        f"trace {place.trace_id}",
        "dataset version digits/v1, not closed yet",
        "└─ 12:00:00.000  BlobCreated  24 ms  shard=train-00000-of-00002  failed: \\x1b[2Jno",
    ] == capsys.readouterr().out.splitlines()
    with pytest.raises(CliError, match="has no trace"):
        show_trace(FunctionApp().client(), "digits/v2", as_json=False)


def test_shards_are_listed_from_all_pages(capsys: pytest.CaptureFixture[str]) -> None:
    """Those with one verdict, each with all of its reasons."""
    path = "/api/datasets/d/v/shards"
    shard = {"name": "train-00003-of-00040", "state": "rejected", "num_records": 7, "size_bytes": 2048}
    pages: list[dict[str, Any]] = [
        {"shards": [{**shard, "reasons": [REASON]}] * 2, "next": f"{path}?after=train%2F3"},
        {"shards": [{**shard, "reasons": []}], "next": None},
    ]
    seen: list[tuple[str, Any]] = []
    with served(iter(pages), seen, status=200) as url:
        landfall.main(["status", "d/v", "--verdict", "rejected", "--url", url, "--key", "k"], standalone_mode=False)
    line = "rejected  train-00003-of-00040  7 records, 2.0 KiB"
    reason = "  the payload's CRC is wrong"
    assert [line, reason, line, reason, line] == capsys.readouterr().out.splitlines()
    assert [f"{path}?limit=1000&state=rejected", f"{path}?after=train%2F3"] == [each for each, _ in seen]
