"""Progress lines and the training report."""

from __future__ import annotations

import json
import math

import pytest

from shared.progress import Progress, parse_progress
from shared.training_report import TrainingReport, TrainingReportError


def report() -> TrainingReport:
    return TrainingReport(
        run_id="landfall-digits-v1-abc-a1",
        fingerprint="f" * 64,
        metrics={"val_accuracy": 0.97},
        epochs=({"epoch": 1, "loss": 0.5},),
        world_size=2,
        num_nodes=2,
        images_per_s=100.0,
        rank_plan={"steps": 3},
        seed=1,
        versions={"tensorflow": "2.18.1"},
        started_at="2026-11-20T10:00:00+00:00",
        ended_at="2026-11-20T10:01:00+00:00",
    )


def test_a_report_survives_a_round_trip() -> None:
    """What the root wrote is what the gate reads."""
    assert TrainingReport.from_json(report().to_json()) == report()


def test_a_metric_that_is_too_large_for_a_number_is_refused() -> None:
    """JSON has integers of any size."""
    members = {**json.loads(report().to_json()), "metrics": {"val_accuracy": 10**400}}
    with pytest.raises(TrainingReportError, match="not a training report"):
        TrainingReport.from_json(json.dumps(members))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "0.99", True, None])
def test_a_metric_that_is_no_finite_number_is_refused(value: object) -> None:
    """A gate never decides on something that only looks like a number."""
    members = {**json.loads(report().to_json()), "metrics": {"val_accuracy": value}}
    with pytest.raises(TrainingReportError, match=r"val_accuracy is .*; it must be a finite number"):
        TrainingReport.from_json(json.dumps(members))


@pytest.mark.parametrize("value", [None, 7])
def test_a_fingerprint_that_is_no_text_is_refused(value: object) -> None:
    """A user's script may write anything there, and readers take it for a text."""
    members = {**json.loads(report().to_json()), "fingerprint": value}
    with pytest.raises(TrainingReportError, match="fingerprint is of type"):
        TrainingReport.from_json(json.dumps(members))


@pytest.mark.parametrize("value", ["fast", True, math.inf, [1]])
def test_a_throughput_that_is_no_number_counts_as_not_timed(value: object) -> None:
    """It is for people only, so it must not cost a run its registration."""
    members = {**json.loads(report().to_json()), "images_per_s": value}
    assert TrainingReport.from_json(json.dumps(members)).images_per_s is None


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "null", '{"format_version": 2}', '{"format_version": 1}', "[" * 100_000]
)
def test_what_is_no_report_is_refused(text: str) -> None:
    """Anything else than a report of this format version raises."""
    with pytest.raises(TrainingReportError, match="not a training report"):
        TrainingReport.from_json(text)


def test_a_progress_line_is_read_back() -> None:
    """A follower sees what the root printed."""
    progress = Progress(epoch=1, epochs=3, step=40, loss=0.5, accuracy=0.8, images_per_s=120.0)
    assert parse_progress(progress.to_line() + "\n") == progress


@pytest.mark.parametrize(
    "line",
    [
        "",
        "epoch 1",
        "LANDFALL_PROGRESS {",
        'LANDFALL_PROGRESS {"x": 1}',
        "LANDFALL_PROGRESS []",
        f"LANDFALL_PROGRESS {'[' * 4000}",
    ],
)
def test_other_and_garbled_lines_are_no_progress(line: str) -> None:
    """A log is full of other lines, and a line may be cut while it is read."""
    assert parse_progress(line) is None
