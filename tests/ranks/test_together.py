"""Ranks that train together: the same weights on all, and the same as one rank alone would get."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from shared.example_schema import FeatureSpec
from tests.ranks.landed import Landed, land_shards
from tests.ranks.ranks import Outcome, job_arguments, program, train, variables
from tests.support.example_bytes import example_bytes

pytestmark = pytest.mark.distributed

SEED_WITHOUT_SHUFFLE = 2
"""In the first epoch it leaves two shards in their order."""


def sgd(digits: Landed, output: Path, ranks: int, **options: Any) -> Outcome:
    """Two epochs of plain SGD over two lanes."""
    settings = {"epochs": 2, "optimizer": "sgd", "learning_rate": 0.01, "num_lanes": 2, **options}
    outcome = train(ranks, job_arguments(digits, output, **settings))
    assert 0 == outcome.exit_code, outcome.log
    return outcome


def assert_same_but_rounding(one: Outcome, other: Outcome, *, atol: float = 2e-5) -> None:
    """Halves of a batch are summed in another order than the whole; over forty steps that grows a little."""
    np.testing.assert_allclose(weights(one), weights(other), rtol=2e-3, atol=atol)


def weights(outcome: Outcome) -> NDArray[Any]:
    return np.concatenate([v.ravel() for name, v in sorted(outcome.variables.items()) if "velocity" not in name])


@pytest.fixture(scope="module")
def two_ranks(digits: Landed, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Two ranks with 32 each."""
    return sgd(digits, tmp_path_factory.mktemp("two"), 2)


def test_two_ranks_get_what_one_rank_with_twice_the_batch_gets(
    two_ranks: Outcome, digits: Landed, tmp_path: Path
) -> None:
    """Averaged gradients of two halves are the whole batch's gradient; without averaging this fails at once."""
    alone = sgd(digits, tmp_path, 1, per_process_batch_size=64)
    assert_same_but_rounding(two_ranks, alone)
    assert two_ranks.report.metrics == pytest.approx(alone.report.metrics, rel=1e-3)


def test_accumulated_batches_and_xla_change_nothing_but_rounding(
    two_ranks: Outcome, digits: Landed, tmp_path: Path
) -> None:
    """Two batches of 16 before each update, compiled by XLA: the same gradient."""
    outcome = sgd(digits, tmp_path, 2, per_process_batch_size=16, gradient_accumulation=2, xla=True)
    assert_same_but_rounding(two_ranks, outcome, atol=5e-5)  # XLA sums in the processor's order: 2.4e-5 on AMD's EPYC


def test_half_precision_learns_as_well(digits: Landed, tmp_path: Path) -> None:
    """bfloat16 computing, gradients travelling as float16: still digits."""
    options = {"optimizer": "adam", "learning_rate": 0.002, "epochs": 4}
    outcome = sgd(digits, tmp_path, 2, mixed_precision="bfloat16", fp16_compression=True, **options)
    assert outcome.report.metrics["val_accuracy"] >= 0.9


def test_every_rank_has_the_same_weights_after_every_epoch_and_all_stop_together(
    digits: Landed, tmp_path: Path
) -> None:
    """Dropout and batch norm included; with no better epoch after the first, all stop after the third."""
    patience = {"epochs": 9, "early_stopping_patience": 2, "minimum_delta": 1e9}
    options = {**patience, "model_module": program("dropout_and_batch_norm")}
    notes = tmp_path / "notes"
    notes.mkdir()
    outcome = train(
        2,
        job_arguments(digits, tmp_path, **options),
        launcher=variables(NOTES_FOLDER=notes),
        instead=[program("dump_weights")],
    )
    assert 0 == outcome.exit_code, outcome.log
    files = {path.name: np.load(path) for path in notes.iterdir()}
    assert {f"rank-{r}-epoch-{e}.npy" for r in (0, 1) for e in (1, 2, 3)} == set(files)
    for epoch in (1, 2, 3):
        np.testing.assert_array_equal(files[f"rank-0-epoch-{epoch}.npy"], files[f"rank-1-epoch-{epoch}.npy"])
    assert (True, 1) == (outcome.report.details["stopped_early"], outcome.report.details["best"]["epoch"])


def test_three_ranks_share_two_uneven_shards(digits_in_two_uneven_shards: Landed, tmp_path: Path) -> None:
    """More ranks than shards, and one shard ten times the other: equal steps, and all get to the end."""
    landed = digits_in_two_uneven_shards
    outcome = train(3, job_arguments(landed, tmp_path, epochs=1, per_process_batch_size=16, remainder="pad"))
    assert 0 == outcome.exit_code, outcome.log
    plan = outcome.report.rank_plan["training"]
    assert (30, 3) == (plan["steps"], plan["padded_records"])


def test_a_record_that_makes_the_loss_no_number_stops_all_ranks_with_the_step(tmp_path: Path) -> None:
    """It is in the second rank's share of the third step; one paragraph, and no report that a gate could believe."""
    good = example_bytes({"image": [0.5] * 4, "label": 1})
    bad = example_bytes({"image": [float("nan")] * 4, "label": 1})
    shards = [[good] * 12, [*[good] * 9, bad, good, good]]
    features = (FeatureSpec(name="image", kind="float", shape=(2, 2, 1)), FeatureSpec(name="label", kind="int64"))
    landed = land_shards(tmp_path / "landed", {"train": shards, "validation": [[good]]}, features)
    in_order = {"shuffle_buffer_records": 1, "seed": SEED_WITHOUT_SHUFFLE}
    options = {"per_process_batch_size": 4, "model_module": program("linear"), **in_order}
    outcome = train(2, job_arguments(landed, tmp_path, **options))
    assert 13 == outcome.exit_code, outcome.log
    assert "The loss of step 3 (epoch 1) on rank 1 is NaN or infinite" in outcome.log
    assert "Traceback" not in outcome.log
    assert not (tmp_path / "report" / "training_report.json").exists()
