"""Ranks that train together get the same weights as a single process, with any options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from shared.manifest import FeatureSpec
from tests.ranks.ranks import Outcome, observed, program, train
from tests.ranks.versions import ClosedVersion, job_arguments, write_version
from tests.support.example_bytes import example_bytes

pytestmark = pytest.mark.distributed

SEED_WITHOUT_SHUFFLE = 2
"""With this seed the first epoch leaves two shards in their order."""


def sgd(digits: ClosedVersion, output: Path, ranks: int | None, **options: Any) -> Outcome:
    """Return the options of two epochs of plain SGD over two lanes."""
    settings = {"epochs": 2, "optimizer": "sgd", "learning_rate": 0.01, "num_lanes": 2, **options}
    outcome = train(ranks, job_arguments(digits, output, **settings))
    assert 0 == outcome.exit_code, outcome.log
    return outcome


def assert_same_but_rounding(one: Outcome, other: Outcome, *, atol: float = 2e-5) -> None:
    """Compare weights, allowing for another order of sums, whose errors add up over forty steps."""
    np.testing.assert_allclose(weights(one), weights(other), rtol=2e-3, atol=atol)
    assert one.report.metrics == pytest.approx(other.report.metrics, rel=1e-3)


def weights(outcome: Outcome) -> NDArray[Any]:
    return np.concatenate([v.ravel() for name, v in sorted(outcome.variables.items()) if "velocity" not in name])


@pytest.fixture(scope="session")
def alone(digits: ClosedVersion, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """A single process with the whole batch of 64, without mpirun."""
    return sgd(digits, tmp_path_factory.mktemp("alone"), None, per_process_batch_size=64)


def test_one_process_needs_no_mpirun(alone: Outcome) -> None:
    """Without a launcher there is one rank, and nothing is averaged."""
    assert (1, "none") == (alone.report.world_size, alone.report.details["exchange"])


@pytest.mark.slow
def test_two_ranks_with_accumulated_batches_under_xla_get_what_one_process_gets(
    alone: Outcome, digits: ClosedVersion, tmp_path: Path
) -> None:
    """The averaged gradients of two ranks, each with two batches of 16, equal those of the whole batch.

    Without averaging, or without accumulation, this fails at once.
    """
    outcome = sgd(digits, tmp_path, 2, per_process_batch_size=16, gradient_accumulation=2, xla=True)
    assert_same_but_rounding(alone, outcome, atol=5e-5)  # XLA sums in an order of the processor: 2.4e-5 on EPYC


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_ranks_get_what_one_process_gets(alone: Outcome, digits: ClosedVersion, tmp_path: Path, ranks: int) -> None:
    """Neither accumulation nor XLA, but Horovod's tape; a single rank under mpirun averages nothing.

    Averaged gradients of two ranks are the whole batch's gradient. Without averaging this fails at once.
    """
    outcome = sgd(digits, tmp_path, ranks, per_process_batch_size=64 // ranks)
    assert_same_but_rounding(alone, outcome)
    assert {1: "none", 2: "horovod"}[ranks] == outcome.report.details["exchange"]


@pytest.mark.slow
def test_half_precision_learns_as_well(digits: ClosedVersion, tmp_path: Path) -> None:
    """It computes in bfloat16 and sends gradients as float16, and still learns the digits."""
    options = {"optimizer": "adam", "learning_rate": 0.002, "epochs": 4}
    outcome = sgd(digits, tmp_path, 2, mixed_precision="bfloat16", fp16_compression=True, **options)
    assert outcome.report.metrics["val_accuracy"] >= 0.9


@pytest.mark.slow
def test_with_dropout_and_batch_norm_ranks_keep_equal_weights_and_stop_early_together(
    digits: ClosedVersion, tmp_path: Path
) -> None:
    """No epoch is better than the first one, so all ranks stop after the third."""
    patience = {"epochs": 9, "early_stopping_patience": 2, "minimum_delta": 1e9}
    options = {**patience, "model_module": program("dropout_and_batch_norm")}
    ended = observed(2, job_arguments(digits, tmp_path, **options))
    root, other = ended.weights
    assert ["1", "2", "3"] == list(root) == list(other)
    for epoch, expected in root.items():
        np.testing.assert_array_equal(expected, other[epoch])
    details = ended.outcome.report.details
    assert (True, 1) == (details["stopped_early"], details["best"]["epoch"])


@pytest.mark.slow
def test_three_ranks_share_two_uneven_shards(digits_in_two_uneven_shards: ClosedVersion, tmp_path: Path) -> None:
    """One shard is ten times the size of the other: the ranks take equal steps and all finish."""
    version = digits_in_two_uneven_shards
    outcome = train(3, job_arguments(version, tmp_path, epochs=1, per_process_batch_size=16, remainder="pad"))
    assert 0 == outcome.exit_code, outcome.log
    plan = outcome.report.rank_plan["training"]
    assert (30, 3) == (plan["steps"], plan["padded_records"])


@pytest.mark.slow
def test_a_record_that_makes_the_loss_nan_stops_all_ranks_with_the_step(tmp_path: Path) -> None:
    """It is in the second rank's part of the third step; there is one paragraph and no report."""
    good = example_bytes({"image": [0.5] * 4, "label": 1})
    bad = example_bytes({"image": [float("nan")] * 4, "label": 1})
    shards = [[good] * 12, [*[good] * 9, bad, good, good]]
    features = (FeatureSpec(name="image", kind="float", shape=(2, 2, 1)), FeatureSpec(name="label", kind="int64"))
    version = write_version(tmp_path / "version", {"train": shards, "validation": [[good]]}, features)
    in_order = {"shuffle_buffer_records": 1, "seed": SEED_WITHOUT_SHUFFLE}
    options = {"per_process_batch_size": 4, "model_module": program("linear"), **in_order}
    outcome = train(2, job_arguments(version, tmp_path, **options))
    assert 13 == outcome.exit_code, outcome.log
    assert "The loss of step 3 (epoch 1) on rank 1 is NaN or infinite" in outcome.log
    assert "Traceback" not in outcome.log
    assert not (tmp_path / "report" / "training_report.json").exists()
