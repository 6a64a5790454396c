"""A whole training: two ranks, real MPI, real data."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.manifest import Manifest
from tests.ranks.landed import Landed
from tests.ranks.ranks import Outcome, job_arguments, train

pytestmark = pytest.mark.distributed


@pytest.fixture(scope="module")
def outcome(digits: Landed, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Two ranks after ten epochs of digits."""
    return train(2, job_arguments(digits, tmp_path_factory.mktemp("digits"), epochs=10, learning_rate=0.002))


def test_two_ranks_learn_digits(outcome: Outcome) -> None:
    """Ten epochs are enough for 0.97 of the validation split."""
    assert 0 == outcome.exit_code, outcome.log
    assert outcome.report.metrics["val_accuracy"] >= 0.97


def test_the_report_states_what_was_trained_and_how(outcome: Outcome, digits: Landed) -> None:
    """Fingerprint, world size and plan are the training's own."""
    report = outcome.report
    manifest = Manifest.from_json(digits.manifest.read_bytes())
    assert (manifest.fingerprint, 2, 1) == (report.fingerprint, report.world_size, report.num_nodes)
    assert 22 == report.rank_plan["training"]["steps"]
    assert 10 == len(report.epochs)


def test_the_root_tells_its_progress_after_every_epoch(outcome: Outcome) -> None:
    """The last line of progress says what the report says."""
    assert {told.epoch for told in outcome.progress} >= set(range(1, 11))
    assert outcome.report.metrics["val_accuracy"] == outcome.progress[-1].val_accuracy


def test_both_exports_are_there(outcome: Outcome) -> None:
    """Keras' own format and the SavedModel lie side by side."""
    assert {"model.keras", "saved_model"} <= {path.name for path in (outcome.output / "model").iterdir()}


def test_one_process_needs_no_mpirun(digits: Landed, tmp_path: Path) -> None:
    """Without a launcher the training is a world of one."""
    alone = train(None, job_arguments(digits, tmp_path, epochs=1))
    assert (0, 1) == (alone.exit_code, alone.report.world_size), alone.log


def test_a_split_below_one_global_batch_is_refused_with_numbers(digits: Landed, tmp_path: Path) -> None:
    """The root says so in one paragraph, without a stack trace, before TensorFlow is loaded."""
    refused = train(2, job_arguments(digits, tmp_path, per_process_batch_size=2000))
    assert 11 == refused.exit_code
    assert 1 == refused.log.count("1437 records in 8 shards, less than one global batch of 4000")
    assert "Traceback" not in refused.log
