"""Run as a program: ranks that exchange arrays through a native library, each looking at all that it got.

    python -m tests.support.rank_sums_ranks LIBRARY NUM_RANKS

Prints how many calls there were and how many different sums the ranks hold, which should be 1. Ends with 1 and the
reason where a rank saw something wrong, or where ranks still wait for one another at the deadline. With a library
and an interpreter under AddressSanitizer this finds every float that is touched beside an array.
"""

from __future__ import annotations

import ctypes
import hashlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.context import ForkProcess
from typing import Final

import numpy as np
from numpy.typing import NDArray

from local_azure.guard import die_with_parent

Floats = NDArray[np.float32]

PIECE: Final = 64 * 1024
"""Floats that the library exchanges at once."""
DEADLINE_S = 90.0
_LATE_S = 0.06
"""Longer than the library stays on its core for a rank that is late."""
_GO_ON_S = 0.004
_LENGTHS = (
    *((), (0,), (1,), (0, 0), (3, 0, 17, 1), (PIECE - 1,), (PIECE,), (PIECE + 1,), (PIECE - 1, 1, PIECE, 0)),
    *((5, 2 * PIECE + 3, 0, 31), (9 * PIECE + 7,), (PIECE - 3, 2, 1), (4 * PIECE, 0), (0, 4 * PIECE, 5)),
)
_NUM_RANDOM_CALLS = 20
_GUARD = np.float32(-12345.5)


@dataclass(frozen=True, kw_only=True)
class Call:
    """What all ranks call with, known to each of them."""

    seed: int
    lengths: tuple[int, ...]
    factors: Floats
    late: int | None
    """The rank that comes late."""

    def inputs(self, rank: int) -> list[Floats]:
        """Make a rank's arrays: of many magnitudes, so that the order of additions shows, and some not finite."""
        chance = np.random.default_rng((self.seed, rank))
        return [_array(chance, rank, length) for length in self.lengths]

    def sums(self, num_ranks: int) -> list[Floats]:
        """Add up in pairs, as the library promises to."""
        held = [self.inputs(rank) for rank in range(num_ranks)]
        with np.errstate(invalid="ignore", over="ignore"):
            while len(held) > 1:
                pairs = zip(held[::2], held[1::2], strict=True)
                held = [[a + b for a, b in zip(one, other, strict=True)] for one, other in pairs]
            return [array * factor for array, factor in zip(held[0], self.factors, strict=True)]


class Placed:
    """An array at any multiple of four bytes, with floats around it that nobody should write."""

    def __init__(self, array: Floats, chance: np.random.Generator) -> None:
        self._begin = int(chance.integers(16))
        self._end = self._begin + len(array)
        self._room = np.full(self._end + int(chance.choice([0, 3])), _GUARD, np.float32)
        self.array: Floats = self._room[self._begin : self._end]
        self.array[:] = array

    @property
    def address(self) -> int | None:
        """Where it begins; an empty array is nowhere."""
        return int(self.array.ctypes.data) if len(self.array) else None

    def is_intact(self) -> bool:
        """Whether what is around it is as it was."""
        return bool((self._room[: self._begin] == _GUARD).all() and (self._room[self._end :] == _GUARD).all())


def calls(num_ranks: int) -> list[Call]:
    """Return all calls, the same in every process."""
    chance = np.random.default_rng(num_ranks)
    lengths = list(_LENGTHS)
    for _ in range(_NUM_RANDOM_CALLS):
        longest = int(chance.choice([40, 3000, 3 * PIECE]))
        lengths.append(tuple(map(int, chance.integers(0, longest, int(chance.integers(1, 9))))))
    return [
        Call(
            seed=number,
            lengths=of_call,
            factors=chance.uniform(-2, 2, len(of_call)).astype(np.float32),
            late=int(chance.integers(num_ranks)) if number % 5 == 0 else None,
        )
        for number, of_call in enumerate(lengths)
    ]


def main(path: str, num_ranks: int) -> int:
    """Start the ranks, stop one now and then in the midst of what it does, and say how it went."""
    library = ctypes.CDLL(path)
    library.rank_sums_memory_bytes.restype = ctypes.c_size_t
    memory = os.memfd_create("rank-sums")
    os.ftruncate(memory, library.rank_sums_memory_bytes(num_ranks))
    read, write = os.pipe()
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=_rank, args=(library, memory, r, num_ranks, write)) for r in range(num_ranks)]
    for rank in ranks:
        rank.start()
    os.close(write)
    try:
        wrong = _await(ranks)
    finally:
        for rank in ranks:
            rank.kill()
            rank.join()
    with os.fdopen(read) as told:
        seen = told.read().split()
    sys.stdout.write(f"{len(calls(num_ranks))} {len(set(seen))}\n")
    sys.stderr.write(wrong)
    return 1 if wrong else 0


def _await(ranks: Sequence[ForkProcess]) -> str:
    """Wait for the ranks; return what is wrong. A rank that is stopped is late where no program could sleep."""
    chance = np.random.default_rng(0)
    deadline = time.monotonic() + DEADLINE_S
    while alive := [rank for rank in ranks if rank.exitcode is None]:
        if any(rank.exitcode for rank in ranks):
            break
        if time.monotonic() > deadline:
            return f"{len(alive)} ranks should have ended within {DEADLINE_S} s"
        stopped = alive[int(chance.integers(len(alive)))]
        os.kill(stopped.pid or 0, signal.SIGSTOP)
        time.sleep(_LATE_S * chance.uniform(0, 1))
        os.kill(stopped.pid or 0, signal.SIGCONT)
        connection.wait([rank.sentinel for rank in alive], _GO_ON_S * len(ranks))
    codes = [rank.exitcode for rank in ranks]
    return f"ranks ended with {codes}" if any(codes) else ""


def _rank(library: ctypes.CDLL, memory: int, rank: int, num_ranks: int, told: int) -> None:
    die_with_parent()
    error = library.rank_sums_open(memory, rank, num_ranks)
    if error:
        raise OSError(error, os.strerror(error))
    digest = hashlib.sha256()
    for call in calls(num_ranks):
        sums = call.sums(num_ranks)
        if rank == call.late:
            time.sleep(_LATE_S)
        for seen, expected in zip(_exchanged(library, call, rank), sums, strict=True):
            digest.update(seen.tobytes())
            if expected.tobytes() != seen.tobytes():
                places = np.flatnonzero(expected.view(np.uint32) != seen.view(np.uint32))
                raise ValueError(f"rank {rank}, call {call.seed}: {len(places)} wrong sums from {places[0]} on")
    os.write(told, f"{digest.hexdigest()}\n".encode())


def _exchanged(library: ctypes.CDLL, call: Call, rank: int) -> list[Floats]:
    """Call the library, with each array in place or not, which no other rank knows."""
    chance = np.random.default_rng((call.seed, rank, 1))
    arrays = call.inputs(rank)
    inputs = [Placed(array, chance) for array in arrays]
    outputs = [p if chance.integers(2) else Placed(np.full_like(p.array, 7), chance) for p in inputs]
    num_arrays = len(arrays)
    library.rank_sums(
        (ctypes.c_void_p * num_arrays)(*(placed.address for placed in inputs)),
        (ctypes.c_void_p * num_arrays)(*(placed.address for placed in outputs)),
        (ctypes.c_int64 * num_arrays)(*call.lengths),
        (ctypes.c_float * num_arrays)(*call.factors.tolist()),
        ctypes.c_size_t(num_arrays),
    )
    if not all(placed.is_intact() for placed in (*inputs, *outputs)):
        raise ValueError(f"rank {rank}, call {call.seed}: something beside an array was written")
    for array, before, after in zip(arrays, inputs, outputs, strict=True):
        if before is not after and array.tobytes() != before.array.tobytes():
            raise ValueError(f"rank {rank}, call {call.seed}: an input was written")
    return [placed.array for placed in outputs]


def _array(chance: np.random.Generator, rank: int, length: int) -> Floats:
    array = chance.standard_normal(length, np.float32)
    array *= array * array
    # One float each of: inf, nan, and inf - inf.
    special = {0: (1, np.nan, np.inf), 1: (np.inf, 1, -np.inf)}.get(rank)
    if special and length > len(special):
        array[: len(special)] = special
    return array


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
