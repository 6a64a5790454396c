"""A rank at its gate: so many steps, then what they took."""

from __future__ import annotations

import json
import os
import select
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.workers.gate import Gate, Gated


class Benchmark:
    """The other end of the socket."""

    def __init__(self, path: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen()

    def meet(self) -> None:
        self._link, _ = self._listener.accept()
        self._listener.close()
        self._answers = self._link.makefile("r", encoding="utf-8")

    def ask(self, *steps: int) -> None:
        self._link.sendall("".join(f"{number}\n" for number in steps).encode())

    def has_answer(self) -> bool:
        return bool(select.select([self._link], [], [], 0)[0])

    def answer(self) -> dict[str, Any]:
        members: dict[str, Any] = json.loads(self._answers.readline())
        return members

    def close(self) -> None:
        self._answers.close()
        self._link.close()


@pytest.fixture
def ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Gate, Benchmark]]:
    """Both ends, of rank 1 of 2; this process may use its cores again afterwards."""
    allowed = os.sched_getaffinity(0)
    benchmark = Benchmark(str(tmp_path / "gate"))
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    cores = [min(allowed), max(allowed)]
    with Gate(str(tmp_path / "gate"), cores) as gate:
        benchmark.meet()
        yield gate, benchmark
    benchmark.close()
    os.sched_setaffinity(0, allowed)


def test_a_rank_has_a_core_of_its_own(ends: tuple[Gate, Benchmark]) -> None:
    """Rank 1 the second of those that are watched; it says who it is."""
    gate, benchmark = ends
    bound = os.sched_getaffinity(0)
    gate.introduce(world_size=2)
    assert {"rank": 1, "process_id": os.getpid(), "world_size": 2} == benchmark.answer()
    assert {max(os.sched_getaffinity(os.getppid()))} == bound


def test_a_turn_is_reported_before_the_next_one_reads_anything(ends: tuple[Gate, Benchmark]) -> None:
    """Two steps, then one: what the third batch costs belongs to the second turn."""
    gate, benchmark = ends
    answered: list[bool] = []

    def batches_of(names: str) -> Iterator[str]:
        for name in names:
            answered.append(benchmark.has_answer())
            yield name

    benchmark.ask(2, 1)
    batches = Gated(batches_of("abc"), gate)
    seen = [next(batches) for _ in range(3)]
    assert (["a", "b", "c"], [False, False, True]) == (seen, answered)
    assert {"wall_s", "busy_s", "own_cpu_s", "resident_bytes"} == set(benchmark.answer())


def test_a_turn_is_measured_by_this_ranks_clocks(ends: tuple[Gate, Benchmark]) -> None:
    """Its CPU time is no longer than one thread can have had, its memory more than nothing."""
    gate, benchmark = ends
    benchmark.ask(1, 1)
    gate.pass_one()
    sum(range(200_000))
    gate.pass_one()
    answered = benchmark.answer()
    assert 0 < answered["own_cpu_s"] <= answered["wall_s"] + 0.01
    assert answered["resident_bytes"] > 1 << 20
