"""Figures of a benchmark with their promised bounds, the table of them, and the results file."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

MIN_SAMPLES = 5
"""Minimum number of samples of a median: with fewer, other work on the machine dominates."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One number with its unit and, if it is a promise, its bounds."""

    name: str
    value: float
    unit: str
    """`ratio` for a comparison within one run; otherwise the unit of the time or rate."""
    at_least: float | None = None
    at_most: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the value is within its bounds; a figure without bounds always holds."""
        high_enough = self.at_least is None or self.value >= self.at_least
        low_enough = self.at_most is None or self.value <= self.at_most
        return high_enough and low_enough

    @property
    def bound(self) -> str:
        """The bounds in words, empty if there are none."""
        words = [f">= {self.at_least:g}"] if self.at_least is not None else []
        return " and ".join([*words, *([f"<= {self.at_most:g}"] if self.at_most is not None else [])])

    def as_json(self) -> dict[str, Any]:
        """Return the figure's entry in a results file, without bounds that are not set."""
        bounds = {"at_least": self.at_least, "at_most": self.at_most}
        stated = {name: bound for name, bound in bounds.items() if bound is not None}
        return {"name": self.name, "value": self.value, "unit": self.unit, **stated, "holds": self.holds}


@dataclass(frozen=True, kw_only=True)
class Context:
    """Everything that a benchmark needs from its caller."""

    root: Path
    """The clone."""
    python: Path
    """The interpreter of .venv, for the function app, the twin and the command line."""
    training_python: Path
    """The interpreter of .venv-training, with TensorFlow and Horovod; mpirun is in the same folder."""
    scratch: Path
    """An empty folder that is removed after the benchmark."""
    say: Callable[[str], None]
    """Prints one line of progress."""


class BenchmarkError(Exception):
    """A benchmark could not measure; the message says why."""


def median(samples: Iterable[float]) -> float:
    """Return the median of at least `MIN_SAMPLES` samples. Raises BenchmarkError if there are fewer."""
    taken = list(samples)
    if len(taken) < MIN_SAMPLES:
        raise BenchmarkError(f"a median needs at least {MIN_SAMPLES} samples, there are {len(taken)}")
    return statistics.median(taken)


def print_table(console: Console, benchmark: str, figures: Sequence[Figure]) -> None:
    """Print one row per figure; broken promises stand out in red."""
    table = Table(title=benchmark, title_justify="left")
    table.add_column("figure")
    table.add_column("value", justify="right")
    for heading in ("unit", "promised", ""):
        table.add_column(heading)
    for figure in figures:
        verdict = "" if not figure.bound else "holds" if figure.holds else "DOES NOT HOLD"
        style = None if figure.holds else "bold red"
        table.add_row(figure.name, f"{figure.value:.4g}", figure.unit, figure.bound, verdict, style=style)
    console.print(table)


def write_results(folder: Path, benchmark: str, figures: Sequence[Figure], root: Path) -> Path:
    """Write `<folder>/<benchmark>.json` atomically and return its path."""
    results = {
        "benchmark": benchmark,
        "commit": commit(root),
        "machine": machine(),
        "figures": [figure.as_json() for figure in figures],
    }
    folder.mkdir(parents=True, exist_ok=True)
    path, aside = folder / f"{benchmark}.json", folder / f"{benchmark}.json.new"
    aside.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    aside.replace(path)
    return path


def commit(root: Path) -> str:
    """Return the current commit, with `+changes` if the tree differs from it; `unknown` outside git."""
    try:
        head = _git(root, "rev-parse", "HEAD")
        return f"{head}+changes" if _git(root, "status", "--porcelain") else head
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def machine() -> dict[str, Any]:
    """Describe the machine for comparisons: processor, cores, memory and Python, but not its name."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30), 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def _processor() -> str:
    with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
        models = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
        return next(models, "unknown")


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout.strip()
