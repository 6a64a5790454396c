"""What happens to a training when its processes are asked to stop, killed or frozen."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.distributed.landed import Landed
from tests.distributed.ranks import Running, end_all, job_arguments, start
from training_job.exit_codes import ExitCode

pytestmark = pytest.mark.distributed

STALL_TIMEOUT_S = 8.0


@pytest.fixture
def running(digits: Landed, tmp_path: Path) -> Iterator[Running]:
    """Two ranks in the middle of a training that would take minutes."""
    arguments = job_arguments(digits, tmp_path, epochs=5000, stall_timeout_s=STALL_TIMEOUT_S)
    running = start(2, arguments)
    try:
        running.wait_for_epoch(1)
        yield running
    finally:
        end_all(running)


@pytest.mark.parametrize("frozen", [0, 1])
def test_a_frozen_rank_ends_the_job_with_its_name(running: Running, frozen: int) -> None:
    """SIGSTOP: others wait in the exchange for ever, and MPI says nothing; the heartbeat does, root or not."""
    running.send(signal.SIGSTOP, frozen)
    outcome = running.ended(timeout_s=10 * STALL_TIMEOUT_S)
    assert ExitCode.RANK_LOST == outcome.exit_code
    assert 1 == outcome.log.count(f"Nothing was heard of rank {frozen} (host ")


def test_a_killed_rank_ends_the_job_with_its_name(running: Running) -> None:
    """SIGKILL: mpirun notices at once, names the rank and ends the others."""
    running.send(signal.SIGKILL, 1)
    outcome = running.ended(timeout_s=10 * STALL_TIMEOUT_S)
    assert 0 != outcome.exit_code
    assert "rank 1" in outcome.log


def test_sigterm_to_one_rank_finishes_the_step_and_saves(running: Running) -> None:
    """All ranks stop after the same step, and another attempt can go on from there."""
    running.send(signal.SIGTERM, 1)
    outcome = running.ended()
    assert ExitCode.INTERRUPTED == outcome.exit_code, outcome.log
    step = outcome.pointer["position"]["step"]
    assert f"was asked to stop and did so after step {step} " in outcome.log
    assert "Traceback" not in outcome.log
