"""A training loop that stops before a step and goes on when the benchmark says so.

A rank connects to the benchmark's socket, says who it is, and waits. It is then told a number of steps, takes
them, says how long they took by its own clocks, and waits again. So several trainings can be loaded at once and
take turns of a few seconds: a machine that slows down slows all of them.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from bench import disturbance

T = TypeVar("T")


class Gate:
    """One rank's end of the socket."""

    def __init__(self, path: str, cores: Sequence[int]) -> None:
        """Bind this rank to a core of its own; before any library starts threads, which inherit the choice.

        Not left to mpirun's --bind-to, which counts a virtual machine's hardware threads differently everywhere.
        """
        self._rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", "0"))
        os.sched_setaffinity(0, {cores[self._rank % len(cores)]})
        self._cores = cores
        self._link = socket.socket(socket.AF_UNIX)
        self._link.connect(path)
        self._asked = self._link.makefile("r", encoding="utf-8")
        self._left = 0
        self._began: disturbance.Reading | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the socket."""
        self._asked.close()
        self._link.close()

    def introduce(self, **facts: Any) -> None:
        """Say that this rank is ready for its first step, and what the benchmark wants to know of it."""
        self._say({"rank": self._rank, "process_id": os.getpid(), **facts})

    def pass_one(self) -> None:
        """Return when the next step may be taken; ends the process where the benchmark has gone."""
        if self._left == 0:
            if self._began is not None:
                self._tell(self._began, disturbance.read(self._cores))
            asked = self._asked.readline()
            if not asked:
                os._exit(0)
            self._left = int(asked)
            self._began = disturbance.read(self._cores)
        self._left -= 1

    def _tell(self, before: disturbance.Reading, after: disturbance.Reading) -> None:
        self._say(
            {
                "wall_s": after.wall_s - before.wall_s,
                "busy_s": after.busy_s - before.busy_s,
                "own_cpu_s": after.own_cpu_s - before.own_cpu_s,
                "resident_bytes": resident_bytes(),
            }
        )

    def _say(self, members: dict[str, Any]) -> None:
        self._link.sendall(json.dumps(members).encode() + b"\n")


class Gated(Generic[T]):
    """Batches behind a gate: each is asked for at the start of a step."""

    def __init__(self, batches: Iterator[T], gate: Gate) -> None:
        self._batches = batches
        self._gate = gate

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        self._gate.pass_one()
        return next(self._batches)


def resident_bytes() -> int:
    """This process's memory at this moment (proc(5), statm)."""
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - as little as possible between steps
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
