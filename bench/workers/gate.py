"""A gate in the training loop: the benchmark decides when a rank takes its next steps.

A rank connects to the benchmark's socket, introduces itself, and waits. It then receives a number of steps, takes
them, reports their duration by its own clocks, and waits again. Several trainings can thus be loaded at once and
take turns of a few seconds, so that a slowdown of the machine affects all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from bench.workers.timed import Reading, read
from shared.job_arguments import JobArguments

T = TypeVar("T")


def open_gate() -> tuple[Gate, JobArguments]:
    """Read the command line and bind this process to its core; return its gate and the training's own arguments."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--gate", required=True, help="path of the benchmark's socket")
    parser.add_argument("--cores", required=True, help="cores of the ranks, one for each, separated by commas")
    own, of_training = sys.argv[1 : sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1 :]
    options = parser.parse_args(own)
    gate = Gate(options.gate, [int(core) for core in options.cores.split(",")])
    return gate, JobArguments.from_argv(of_training)


class Gate:
    """The end of the socket in one rank."""

    def __init__(self, path: str, cores: Sequence[int]) -> None:
        """Bind this rank to a core, before libraries start threads, which inherit the binding.

        `mpirun --bind-to` counts hardware threads differently on different virtual machines.
        """
        self._rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", "0"))
        os.sched_setaffinity(0, {cores[self._rank % len(cores)]})
        self._cores = cores
        self._link = socket.socket(socket.AF_UNIX)
        self._link.connect(path)
        self._requests = self._link.makefile("r", encoding="utf-8")
        self._left = 0
        self._began: Reading | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the socket."""
        self._requests.close()
        self._link.close()

    def introduce(self, **facts: Any) -> None:
        """Report that this rank is ready for its first step, with facts about it."""
        self._send({"rank": self._rank, "process_id": os.getpid(), **facts})

    def pass_one(self) -> None:
        """Wait until the next step may be taken; end the process if the benchmark has ended."""
        if self._left == 0:
            if self._began is not None:
                self._report(self._began, read(self._cores))
            num_steps = self._requests.readline()
            if not num_steps:
                os._exit(0)
            self._left = int(num_steps)
            self._began = read(self._cores)
        self._left -= 1

    def _report(self, before: Reading, after: Reading) -> None:
        self._send(
            {
                "wall_s": after.wall_s - before.wall_s,
                "busy_s": after.busy_s - before.busy_s,
                "own_cpu_s": after.own_cpu_s - before.own_cpu_s,
                "resident_bytes": resident_bytes(),
            }
        )

    def _send(self, members: dict[str, Any]) -> None:
        self._link.sendall(json.dumps(members).encode() + b"\n")


class Gated(Generic[T]):
    """Batches behind a gate: each one waits at the gate."""

    def __init__(self, batches: Iterator[T], gate: Gate) -> None:
        self._batches = batches
        self._gate = gate

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        self._gate.pass_one()
        return next(self._batches)


def resident_bytes() -> int:
    """Return the resident memory of this process (proc(5), statm)."""
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - as little as possible between steps
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
