"""What happens to a training when its processes are asked to stop, killed or frozen."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from local_azure.processes import wait_until
from shared.exit_codes import ExitCode
from tests.ranks.ranks import DEADLINE_S, Running, end_all, program, start, train, variables
from tests.ranks.versions import ClosedVersion, job_arguments
from tests.support.metadata_service import MetadataService
from training_job.checkpoints.store import CheckpointStore

pytestmark = pytest.mark.distributed

STALL_TIMEOUT_S = 20.0


@pytest.fixture
def liveness_from(tmp_path: Path) -> Path:
    """A file that a test creates to start the liveness checks, however long the start took."""
    return tmp_path / "liveness-from"


@pytest.fixture
def running(digits: ClosedVersion, tmp_path: Path, liveness_from: Path) -> Iterator[Running]:
    """Two ranks in the middle of a training that would take minutes."""
    arguments = job_arguments(digits, tmp_path, epochs=5000, stall_timeout_s=STALL_TIMEOUT_S)
    launcher = variables(LIVENESS_FROM=liveness_from)
    running = start(2, arguments, instead=[program("liveness_from_now")], launcher=launcher)
    try:
        running.wait_for_epoch(1)
        yield running
    finally:
        end_all(running)


@pytest.mark.parametrize("frozen", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_a_frozen_rank_ends_the_job_with_its_name(running: Running, liveness_from: Path, frozen: int) -> None:
    """After SIGSTOP, MPI waits for ever without a message; the heartbeat detects it, even if the root is frozen."""
    running.send(signal.SIGSTOP, frozen)
    liveness_from.touch()
    outcome = running.ended()
    assert ExitCode.RANK_LOST == outcome.exit_code
    assert 1 == outcome.log.count(f"No heartbeat came from rank {frozen} (host ")


@pytest.mark.slow
def test_a_killed_rank_ends_the_job_with_its_name(running: Running) -> None:
    """After SIGKILL, mpirun notices at once, names the rank and ends the others."""
    running.send(signal.SIGKILL, 1)
    outcome = running.ended()
    assert 0 != outcome.exit_code
    assert "rank 1" in outcome.log


@pytest.mark.slow
@pytest.mark.parametrize("to", ["SIGTERM to a rank", "SIGUSR1 to mpirun"])
def test_a_request_to_stop_finishes_the_step_and_saves(running: Running, to: str) -> None:
    """All ranks stop after the same step, the next attempt can continue, and mpirun exits with the ranks' code."""
    if to == "SIGTERM to a rank":
        running.send(signal.SIGTERM, 1)
    else:
        running.process.popen.send_signal(signal.SIGUSR1)
    outcome = running.ended()
    assert ExitCode.INTERRUPTED == outcome.exit_code, outcome.log
    step = outcome.pointer["position"]["step"]
    assert f"was asked to stop and did so after step {step} " in outcome.log
    assert "Traceback" not in outcome.log


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("meeting", "The ranks have not met within 10 s. Of 2, rank 1 gave no sign"),
        ("heartbeat", "No heartbeat ever came from rank 1 since the ranks met"),
    ],
)
def test_a_rank_that_stops_before_its_first_heartbeat_is_named(
    digits: ClosedVersion, tmp_path: Path, where: str, words: str
) -> None:
    """It stops before it connects to the others, or between that and its first heartbeat."""
    outcome = train(
        2,
        job_arguments(digits, tmp_path, stall_timeout_s=4.0),
        instead=[program("stopped_at_the_start")],
        launcher=variables(STOPPED_AT=where),
    )
    assert ExitCode.RANK_LOST == outcome.exit_code, outcome.log
    assert 1 == outcome.log.count(words)
    assert "Traceback" not in outcome.log


def test_a_notice_of_a_nodes_end_saves_a_checkpoint_and_a_request_to_stop_ends_the_training(
    digits: ClosedVersion, tmp_path: Path
) -> None:
    """The training is in the middle of an epoch that would take hours.

    The notice does not end the training; SIGUSR1 does, after a step, with a checkpoint and an exit code of its own.
    """
    endless = {"synthetic_records": 64 << 20, "image_height": 8, "image_width": 8, "image_channels": 1}
    arguments = job_arguments(digits, tmp_path, **endless)
    checkpoints = CheckpointStore(Path(arguments.checkpoints), keep=3)
    with MetadataService() as service:
        running = start(2, arguments, launcher=variables(LANDFALL_SCHEDULED_EVENTS_URL=service.url))
        try:
            service.announce("e1", "Preempt")
            saved = wait_until(checkpoints.latest_position, what="a checkpoint", timeout_s=DEADLINE_S)
            running.process.popen.send_signal(signal.SIGUSR1)
            outcome = running.ended()
        finally:
            end_all(running)
    assert ExitCode.INTERRUPTED == outcome.exit_code, outcome.log
    step = outcome.pointer["position"]["step"]
    assert 0 < saved.step < step
    assert 1 == outcome.log.count("Azure announces Preempt")
    assert f"was asked to stop and did so after step {step} " in outcome.log
    assert "Traceback" not in outcome.log
