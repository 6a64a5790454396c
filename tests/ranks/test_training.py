"""A complete training in every respect: two ranks, real MPI, real data, and all reports switched on."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from shared.manifest import Manifest
from shared.training_report import EXAMPLES_NAME
from tests.ranks.ranks import Observed, Outcome, observed, score, train
from tests.ranks.versions import ClosedVersion, job_arguments

pytestmark = pytest.mark.distributed

EPOCHS = 10
STEPS_OF_EPOCH = 22


@pytest.fixture(scope="session")
def training(digits: ClosedVersion, tmp_path_factory: pytest.TempPathFactory) -> Observed:
    """Two ranks after ten epochs of digits, with the best epoch exported."""
    options = {
        "epochs": EPOCHS,
        "learning_rate": 0.002,
        "export": "best",
        "measure_communication": True,
        "tensorboard": True,
        "mlflow": True,
        "timeline": True,
    }
    return observed(2, job_arguments(digits, tmp_path_factory.mktemp("training"), **options))


@pytest.fixture
def outcome(training: Observed) -> Outcome:
    """The outcome of that training."""
    return training.outcome


def test_two_ranks_learn_digits(outcome: Outcome) -> None:
    """Ten epochs reach a validation accuracy of 0.97."""
    assert outcome.report.metrics["val_accuracy"] >= 0.97


def test_every_gradient_goes_through_horovod(training: Observed) -> None:
    """On each rank the step passes Horovod one tensor of each trained variable's shape; the report confirms it."""
    assert "horovod" == training.outcome.report.details["exchange"]
    for notes in training.notes:
        assert sorted(notes["trained"]) == sorted(notes["averaged"])


def test_every_rank_has_the_same_weights_after_every_epoch(training: Observed) -> None:
    """The weights are identical to the bit."""
    root, other = training.weights
    assert [str(epoch) for epoch in range(1, EPOCHS + 1)] == list(root) == list(other)
    for epoch, weights in root.items():
        np.testing.assert_array_equal(weights, other[epoch])


def test_the_report_states_what_was_trained_and_how(outcome: Outcome, digits: ClosedVersion) -> None:
    """Fingerprint, world size and plan are those of the training."""
    report = outcome.report
    manifest = Manifest.from_json(digits.manifest.read_bytes())
    assert (manifest.fingerprint, 2, 1) == (report.fingerprint, report.world_size, report.num_nodes)
    assert STEPS_OF_EPOCH == report.rank_plan["training"]["steps"]
    assert EPOCHS == len(report.epochs)


def test_the_results_of_each_validation_example_make_up_the_metrics(outcome: Outcome, digits: ClosedVersion) -> None:
    """The results have each record of the manifest once, whichever rank evaluated it; averages equal the report's."""
    table = pq.read_table(outcome.output / "report" / EXAMPLES_NAME)
    split = Manifest.from_json(digits.manifest.read_bytes()).split("validation")
    records = [(shard.name, record) for shard in split for record in range(shard.num_records)]
    assert records == list(zip(table["shard"].to_pylist(), table["record"].to_pylist(), strict=True))
    for name in ("accuracy", "loss", "top5_accuracy"):
        mean = float(np.mean(table[name].to_numpy()))
        assert mean == pytest.approx(outcome.report.metrics[f"val_{name}"], rel=1e-5), name


def test_the_report_has_times_and_what_communication_costs(outcome: Outcome) -> None:
    """Percentiles rise, shares are between 0 and 1, and throughput is above 0."""
    times, costs = outcome.report.details["step_times"], outcome.report.details["communication"]
    assert 0 < times["p50_ms"] <= times["p90_ms"] <= times["p99_ms"]
    assert EPOCHS * STEPS_OF_EPOCH - 10 == times["timed_steps"]
    assert 0 <= times["input_wait_share"] < 1
    assert 0 <= costs["share"] < 1
    assert 4 * outcome.report.details["model"]["weights"] == costs["gradient_bytes"]
    assert (outcome.report.images_per_s or 0) > 0


def test_the_report_names_versions_hardware_seed_and_options(outcome: Outcome) -> None:
    """They are everything that is needed to reproduce the numbers."""
    report = outcome.report
    assert {"python", "keras", "horovod", "numpy", "openmpi"} <= set(report.versions)
    assert report.details["hardware"]["cores"] > 0
    assert (0, "adam") == (report.seed, report.details["options"]["optimizer"])


def test_the_exported_epochs_metrics_are_the_reports(outcome: Outcome) -> None:
    """The best epoch is chosen by validation loss."""
    report = outcome.report
    best = min(report.epochs, key=lambda record: record["val_loss"])
    assert (best["epoch"], best["val_loss"]) == (report.details["exported_epoch"], report.metrics["val_loss"])


def test_the_root_reports_progress_after_every_epoch(outcome: Outcome) -> None:
    """The last progress line has the metrics of the report's last epoch."""
    assert {progress.epoch for progress in outcome.progress} >= set(range(1, EPOCHS + 1))
    assert outcome.report.epochs[-1]["val_accuracy"] == outcome.progress[-1].val_accuracy


def test_both_exports_are_there(outcome: Outcome) -> None:
    """The folder has Keras' own format and the SavedModel."""
    assert {"model.keras", "saved_model"} <= {path.name for path in (outcome.output / "model").iterdir()}


def test_the_report_states_the_digest_of_each_file_of_the_model(outcome: Outcome) -> None:
    """This includes the model card: the passport's check reports any other file as a difference."""
    folder = outcome.output / "model"
    files = {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }
    assert files == outcome.report.details["model_files"]


@pytest.mark.slow
def test_the_script_of_the_page_on_serving_scores_as_the_training_evaluated(
    outcome: Outcome, digits: ClosedVersion, tmp_path: Path
) -> None:
    """Single requests and files score the reported accuracy; larger images are cropped as in training."""
    found = score(outcome.output / "model", digits.folder, tmp_path)
    assert outcome.report.metrics["val_accuracy"] == pytest.approx(found["accuracy"], abs=1e-6)
    assert found["batch_is_online"]
    assert found["centre_differs_by"] < 1e-3
    assert found["no_image"]["error"].startswith("not an image: ")
    assert {"error": "at most 64 images in a request, got 65"} == found["too_many"]


def test_curves_are_a_picture(outcome: Outcome) -> None:
    """The picture is a valid PNG, with its first two lines in matplotlib's first two colours."""
    with Image.open(outcome.output / "report" / "curves.png") as picture:
        assert "PNG" == picture.format
        colours = {colour for _, colour in picture.convert("RGB").getcolors(picture.width * picture.height) or []}
    assert {(31, 119, 180), (255, 127, 14)} <= colours


def test_the_model_card_says_what_the_model_was_trained_on(outcome: Outcome) -> None:
    """The card names dataset version, fingerprint, metric and ranks; each heading is a line of its own."""
    card = (outcome.output / "model" / "model_card.md").read_text()
    for words in (
        "digits/v1",
        outcome.report.fingerprint,
        f"{outcome.report.metrics['val_accuracy']:.4f}",
        "2 ranks",
        "\n## Use\n`model.keras` and `saved_model/` ",
    ):
        assert words in card


def test_tensorboard_mlflow_and_timeline_are_written_by_the_root_alone(outcome: Outcome) -> None:
    """There are one event file for each epoch, one MLflow run with a value for each, and one timeline in JSON."""
    report = outcome.output / "report"
    events = [path.read_bytes().count(b"epoch/val_accuracy") for path in (report / "tensorboard").iterdir()]
    assert [1] * EPOCHS == events
    values = [path.read_text().split("\n") for path in (report / "mlflow").rglob("metrics/val_accuracy")]
    assert [EPOCHS] == [len([line for line in lines if line]) for lines in values]
    timeline = json.loads((report / "horovod_timeline.json").read_text())
    assert "ALLREDUCE" in {event.get("name") for event in timeline}


def test_a_split_below_one_global_batch_is_refused_with_numbers(digits: ClosedVersion, tmp_path: Path) -> None:
    """The root says so in one paragraph, without a stack trace, before TensorFlow is loaded."""
    refused = train(2, job_arguments(digits, tmp_path, per_process_batch_size=2000))
    assert 19 == refused.exit_code
    assert 1 == refused.log.count("needs 4000 records for each step, but split train has 1437")
    assert "Traceback" not in refused.log
