"""Real launches with less than a job requests: each ends at once and reports the counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.exit_codes import ExitCode
from tests.ranks.ranks import program, train, variables
from tests.ranks.test_failing import assert_failed
from tests.ranks.versions import ClosedVersion, job_arguments

pytestmark = [pytest.mark.distributed]

PAID_FOR = {"epochs": 1, "expected_world_size": 4, "expected_nodes": 2}


@pytest.mark.parametrize(
    ("ranks", "seen"),
    [
        (2, "the launcher started 2, 2 of them on this node."),
        (4, "the launcher started 4, 4 of them on this node."),
        (None, "this process was started without mpirun, as the only rank."),
    ],
)
def test_a_launch_of_other_ranks_ends_before_tensorflow_is_loaded(
    digits: ClosedVersion, tmp_path: Path, ranks: int | None, seen: str
) -> None:
    """Half of the ranks, all of them on one node, or a single one that no launcher started."""
    outcome = train(ranks, job_arguments(digits, tmp_path, **PAID_FOR))
    assert_failed(outcome, ExitCode.MISSING_RESOURCES, f"Expected 4 ranks on 2 nodes; {seen}")


@pytest.mark.slow
def test_ranks_that_do_not_meet_are_counted_by_horovod(digits: ClosedVersion, tmp_path: Path) -> None:
    """The variables say two ranks, but no MPI launcher started the process, so it is alone."""
    stated = ("OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_SIZE=2", "OMPI_COMM_WORLD_RANK=0")
    arguments = job_arguments(digits, tmp_path, epochs=1, expected_world_size=2, expected_nodes=1)
    outcome = train(None, arguments, within=["env", *stated])
    words = "Expected 2 ranks on 1 node; Horovod connected 1 rank on 1 node."
    assert_failed(outcome, ExitCode.MISSING_RESOURCES, words)


@pytest.mark.slow
def test_ranks_without_a_gpu_do_not_train_on_processors(digits: ClosedVersion, tmp_path: Path) -> None:
    """TensorFlow alone would train on processors without a message."""
    arguments = job_arguments(
        digits, tmp_path, epochs=1, expected_world_size=2, expected_nodes=1, expected_device="gpu"
    )
    outcome = train(2, arguments)
    assert_failed(outcome, ExitCode.MISSING_RESOURCES, "Expected a GPU for each of 2 ranks; TensorFlow has one on 0.")
    assert 2 == outcome.log.count("TensorFlow finds no GPU.")


@pytest.mark.slow
def test_one_rank_without_a_gpu_ends_all(digits: ClosedVersion, tmp_path: Path) -> None:
    """The root has a GPU and the other rank names its node; TensorFlow's GPU functions are simulated."""
    outcome = train(
        2,
        job_arguments(digits, tmp_path, epochs=1, expected_device="gpu"),
        instead=[program("played_gpus")],
        launcher=variables(NOTES_FOLDER=tmp_path, NUM_GPUS=1),
    )
    assert_failed(outcome, ExitCode.MISSING_RESOURCES, "Expected a GPU for each of 2 ranks; TensorFlow has one on 1.")
    assert "Local rank 1 has no GPU of its own: its node has 1." in outcome.log
