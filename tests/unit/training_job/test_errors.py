"""How a failed rank ends; with other ranks, it is tested in tests/ranks/test_failing.py."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.processes import REPOSITORY, child_environment

FAILS = """
import atexit, sys
from training_job.errors import end_job
atexit.register(print, "an orderly exit")
print("why it ends", end="")
end_job(20)
"""


@pytest.mark.processes
@pytest.mark.parametrize("world_size", [1, 2])
def test_a_rank_without_mpi_ends_at_once_with_its_code(world_size: int) -> None:
    """What it has printed is not lost, and nothing else is done."""
    ended = subprocess.run(
        [sys.executable, "-c", FAILS],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env=child_environment(OMPI_COMM_WORLD_SIZE=str(world_size)),
        check=False,
        timeout=300,
    )
    assert (20, "why it ends", "") == (ended.returncode, ended.stdout, ended.stderr)
