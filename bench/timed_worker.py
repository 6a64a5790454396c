"""Timed worker processes, and rounds in which two of them take turns on undisturbed cores."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.figures import MIN_SAMPLES, BenchmarkError, Context
from local_azure.guard import die_with_parent

MAX_ROUNDS = 60
MAX_OTHERS_SHARE = 0.10
"""Share of the cores' time: about the error with which a sample of a tenth of a second is measured."""


@dataclass(frozen=True)
class Sample:
    """The time of one request."""

    wall_s: float
    others: float
    """Share of the cores' time that other processes used during the request."""
    result: int


Measure = Callable[[], Sample]


def undisturbed(ours: Measure, theirs: Measure) -> tuple[list[float], list[float]]:
    """Let two take turns; return the times of undisturbed rounds, as (ours, theirs).

    The first round warms up. Raises BenchmarkError if there are too few undisturbed rounds.
    """
    ours()
    theirs()
    kept: list[tuple[float, float]] = []
    for _ in range(MAX_ROUNDS):
        pair = ours(), theirs()
        if max(sample.others for sample in pair) <= MAX_OTHERS_SHARE:
            kept.append((pair[0].wall_s, pair[1].wall_s))
        if len(kept) == MIN_SAMPLES:
            return [own for own, _ in kept], [other for _, other in kept]
    raise BenchmarkError(
        f"only {len(kept)} of {MAX_ROUNDS} rounds were undisturbed: other processes used more than "
        f"{MAX_OTHERS_SHARE:.0%} of the cores; measure on an idle machine"
    )


class Worker:
    """A process of ``bench/workers``: one line per request and per answer. It ends with this process."""

    def __init__(
        self, context: Context, python: Path, program: str, settings: Mapping[str, str] | None = None
    ) -> None:
        self._program = program
        self._log = context.scratch / f"{program}.log"
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        self._process = subprocess.Popen(
            [str(python), "-m", f"bench.workers.{program}"],
            cwd=context.root,
            env={**kept, "TF_CPP_MIN_LOG_LEVEL": "3", **(settings or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log.open("w"),
            text=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - there are no threads here
        )

    def ask(self, do: str, **arguments: Any) -> Sample:
        """Make a request. Raises BenchmarkError with the end of the worker's log if it fails."""
        if self._process.stdin is None or self._process.stdout is None:
            raise BenchmarkError(f"{self._program} has no pipes")
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise BenchmarkError(self._failure()) from None
        line = self._process.stdout.readline()
        if not line:
            raise BenchmarkError(self._failure())
        return Sample(**json.loads(line))

    def _failure(self) -> str:
        return f"{self._program} ended: {self._log.read_text(encoding='utf-8', errors='replace')[-500:]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait(timeout=60)
