"""How many arenas the C library has in the end; asked in a process of its own, for a limit is for good."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.processes import REPOSITORY

_THREADS = 6
_PROGRAM = f"""
import ctypes, pathlib, sys, tempfile, threading
from shared.training_options import TrainingOptions
from training_job.allocator import limit_arenas
from training_job.process_environment import set_for

if sys.argv[1] == "as a rank":
    set_for(TrainingOptions(), pathlib.Path("report"))
elif sys.argv[1] != "none":
    limit_arenas(int(sys.argv[1]))
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
together = threading.Barrier({_THREADS})

def take():
    memory = bytearray(50_000)
    together.wait()

threads = [threading.Thread(target=take) for _ in range({_THREADS})]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
with tempfile.NamedTemporaryFile() as told:
    file = ctypes.c_void_p(libc.fopen(told.name.encode(), b"w"))
    libc.malloc_info(0, file)
    libc.fclose(file)
    print(pathlib.Path(told.name).read_text().count("<heap nr="))
"""


def arenas(limit: str, **environment: str) -> int:
    """Return the number of arenas after six threads had memory at the same time."""
    told = subprocess.run(
        [sys.executable, "-c", _PROGRAM, limit],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), **environment},
        stdout=subprocess.PIPE,
        check=True,
    )
    return int(told.stdout)


def test_threads_share_the_arenas_there_are() -> None:
    """Without a limit the six threads and the main one have an arena each."""
    assert (7, 2, 1) == (arenas("none"), arenas("2"), arenas("1"))


def test_a_rank_has_as_many_arenas_as_cores() -> None:
    """Its environment is set with the limit: here, one core of a node's that many ranks share."""
    assert 1 == arenas("as a rank", OMPI_COMM_WORLD_LOCAL_SIZE="1000")


@pytest.mark.parametrize(
    "stated",
    [{"MALLOC_ARENA_MAX": "4"}, {"GLIBC_TUNABLES": "glibc.malloc.arena_max=4"}],
    ids=lambda stated: str(*stated),
)
def test_what_the_caller_has_set_is_left_alone(stated: dict[str, str]) -> None:
    """The limit is for a process whose environment states none."""
    assert 4 == arenas("2", **stated)
