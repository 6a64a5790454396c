"""Ranks of one node that average through memory that they share: the same as through Horovod."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.distributed.landed import Landed
from tests.distributed.ranks import Outcome, job_arguments, program, train, variables
from tests.distributed.test_together import assert_same_but_rounding, sgd, weights

pytestmark = pytest.mark.distributed


def notes(digits: Landed, folder: Path, ranks: int, **environment: object) -> list[dict[str, Any]]:
    """Return what each rank noted of one exchange."""
    outcome = train(
        ranks,
        job_arguments(digits, folder / "run"),
        instead=[program("exchanged")],
        launcher=variables(NOTES_FOLDER=folder, **environment),
    )
    assert 0 == outcome.exit_code, outcome.log
    return [json.loads((folder / f"exchanged-{rank}.json").read_text()) for rank in range(ranks)]


def test_gradients_of_every_kind_are_averaged_and_nobody_elses_memory_is_written(
    digits: Landed, tmp_path: Path
) -> None:
    """Sparse ones, those that are no float32, none at all; a variable and a constant keep what they are."""
    of_both = {
        "through": "node",
        "variable": [1.5],
        "constant": [1.5, 7.0],
        "twice": [3.0],
        "twice again": [3.0],
        "none": None,
        "sparse": [3.0, 0.0],
        "double": [1.5],
        "empty": [],
        "long": [4.5],
        "news": [2.0, 3.0],
        "niceness": [19],
        "own_niceness": 0,
    }
    expected = [{**of_both, "kept": [1.0, 1.0]}, {**of_both, "kept": [2.0, 2.0]}]
    assert expected == notes(digits, tmp_path, 2)


def test_four_ranks_meet_in_two_rounds(digits: Landed, tmp_path: Path) -> None:
    """Each with one and then with another: the average is of all."""
    assert [[2.5]] * 4 == [found["variable"] for found in notes(digits, tmp_path, 4)]


@pytest.mark.parametrize(
    ("ranks", "environment"), [(2, {"WITHOUT_LIBRARY": 0}), (2, {"WITHOUT_LIBRARY": 1}), (3, {})]
)
def test_where_one_rank_cannot_all_go_through_horovod(
    digits: Landed, tmp_path: Path, ranks: int, environment: dict[str, object]
) -> None:
    """The root or another without its library, and three ranks; Horovod's threads keep their share of the core."""
    found = notes(digits, tmp_path, ranks, **environment)
    assert [{"through": "horovod", "niceness": [0], "own_niceness": 0}] * ranks == found


@pytest.fixture(scope="module")
def through_memory(digits: Landed, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Two epochs of two ranks."""
    return sgd(digits, tmp_path_factory.mktemp("memory"), 2)


def test_a_training_has_the_same_weights_through_horovod(
    through_memory: Outcome, digits: Landed, tmp_path: Path
) -> None:
    """To the bit for two ranks: a sum of two numbers has one order. And each says which way it went."""
    through_horovod = sgd(digits, tmp_path, 2, exchange="horovod")
    np.testing.assert_array_equal(weights(through_memory), weights(through_horovod))
    assert ("shared memory", "horovod") == (exchange(through_memory), exchange(through_horovod))


def test_four_ranks_get_what_one_with_four_times_the_batch_gets(digits: Landed, tmp_path: Path) -> None:
    """Sixteen each, against sixty-four."""
    four = sgd(digits, tmp_path / "four", 4, per_process_batch_size=16, num_lanes=4)
    one = sgd(digits, tmp_path / "one", 1, per_process_batch_size=64, num_lanes=4)
    assert_same_but_rounding(four, one)
    assert ("shared memory", "none") == (exchange(four), exchange(one))


def exchange(outcome: Outcome) -> str:
    """Return what the report says of the way that gradients took."""
    way: str = outcome.report.details["exchange"]
    return way
