"""Sums over ranks through memory that they share: right to the bit, on all ranks, whoever is late."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from local_azure.processes import PATIENCE_S
from tests.support.processes import REPOSITORY, child_environment
from tests.support.rank_sums_ranks import calls

SOURCE = REPOSITORY / "training_job" / "exchange" / "rank_sums.cc"
WARNINGS = ("-Wall", "-Wextra", "-Werror")
NO_NUMBERS_OF_RANKS = (-2, 0, 1, 3, 6, 12, 2048)
"""That are no power of two above one, or more than a node has."""

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the library is built for x86-64 alone"),
]


def built(library: Path, *flags: str) -> Path:
    """Compile the source alone, without TensorFlow; every warning is an error."""
    command = ["g++", "-std=c++17", *WARNINGS, "-fPIC", "-shared", *flags, "-o", str(library), str(SOURCE)]
    subprocess.run(command, check=True)
    return library


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library as the set-up compiles it."""
    return built(tmp_path_factory.mktemp("built") / "rank_sums.so", "-O3")


@pytest.fixture(scope="module")
def functions(library: Path) -> ctypes.CDLL:
    """The library in this process."""
    loaded = ctypes.CDLL(str(library))
    loaded.rank_sums_memory_bytes.restype = ctypes.c_size_t
    return loaded


@pytest.fixture
def memory(functions: ctypes.CDLL) -> Iterator[int]:
    """Memory of the right size for two ranks."""
    descriptor = os.memfd_create("rank-sums")
    os.ftruncate(descriptor, functions.rank_sums_memory_bytes(2))
    yield descriptor
    os.close(descriptor)


def ended(library: Path, num_ranks: int, **settings: str) -> tuple[int, str, str]:
    """Let ranks exchange; return the exit status and what was printed."""
    command = [sys.executable, "-m", "tests.support.rank_sums_ranks", str(library), str(num_ranks)]
    environment = child_environment(OPENBLAS_NUM_THREADS="1", **settings)
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, check=False, capture_output=True, text=True, timeout=PATIENCE_S
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("num_ranks", [2, 4, 8])
def test_sums(library: Path, num_ranks: int) -> None:
    """All ranks get the pairwise sums in float32 times each array's factor, and nothing else is written."""
    assert (0, f"{len(calls(num_ranks))} 1\n", "") == ended(library, num_ranks)


def test_memory_safety(tmp_path: Path) -> None:
    """Arrays are kept to their bounds with defined arithmetic, by what the compiler has put in to see it."""
    sanitizers = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover")
    instrumented = built(tmp_path / "instrumented.so", *sanitizers)
    found = subprocess.run(["g++", "-print-file-name=libasan.so"], check=True, capture_output=True, text=True)
    seen = ended(
        instrumented,
        4,
        LD_PRELOAD=found.stdout.strip(),
        ASAN_OPTIONS="detect_leaks=0",  # the interpreter's own
        PYTHONMALLOC="malloc",
    )
    assert (0, f"{len(calls(4))} 1\n", "") == seen


@pytest.mark.parametrize("num_ranks", NO_NUMBERS_OF_RANKS)
def test_numbers_of_ranks_that_it_cannot_add_up(functions: ctypes.CDLL, memory: int, num_ranks: int) -> None:
    """It needs no memory for them, and refuses any, of no size as of some."""
    empty = os.memfd_create("empty")
    refused = [functions.rank_sums_open(descriptor, 0, num_ranks) for descriptor in (memory, empty)]
    os.close(empty)
    assert (0, [errno.EINVAL] * 2) == (functions.rank_sums_memory_bytes(num_ranks), refused)


@pytest.mark.parametrize(("rank", "expected"), [(-1, errno.EINVAL), (0, 0), (1, 0), (2, errno.EINVAL)])
def test_ranks(functions: ctypes.CDLL, memory: int, rank: int, expected: int) -> None:
    """A rank is one of those that the memory is for."""
    assert expected == functions.rank_sums_open(memory, rank, 2)


@pytest.mark.parametrize("more", [-1, 1, 4096])
def test_memory_of_another_size(functions: ctypes.CDLL, memory: int, more: int) -> None:
    """Memory that is not of just the size for these ranks is another's."""
    os.ftruncate(memory, functions.rank_sums_memory_bytes(2) + more)
    assert errno.EINVAL == functions.rank_sums_open(memory, 0, 2)


def test_memory_that_cannot_be_mapped(functions: ctypes.CDLL, memory: int) -> None:
    """What the system says is handed on: no such descriptor, no right to write."""
    for_reading = os.open(f"/proc/self/fd/{memory}", os.O_RDONLY)
    refused = functions.rank_sums_open(for_reading, 0, 2)
    os.close(for_reading)
    assert (errno.EACCES, errno.EBADF) == (refused, functions.rank_sums_open(-1, 0, 2))


def test_memory_grows_with_ranks_and_rounds(functions: ctypes.CDLL) -> None:
    """Each rank has a desk in each round, behind one page of the caller's."""
    sizes = [functions.rank_sums_memory_bytes(num_ranks) - 4096 for num_ranks in (2, 4, 8)]
    assert [sizes[0], 4 * sizes[0], 12 * sizes[0]] == sizes
