"""A worker process of the validator benchmark: asked by a line, answers with a line, dies with this process."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.figures import BenchmarkError, Context
from local_azure.guard import die_with_parent


@dataclass(frozen=True)
class Sample:
    """What one request took."""

    wall_s: float
    others: float
    """The share of the cores' time that somebody else used meanwhile."""
    result: int


class Worker:
    """One program of ``bench/workers``; a context manager."""

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
        """Let it do something. Raises BenchmarkError with the end of its log where it cannot."""
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
