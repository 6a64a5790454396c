"""Figures: what a benchmark measured, and what was promised of it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MIN_SAMPLES = 5
"""A figure is the median of at least so many samples: one alone says nothing on a machine that others use too."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One number with its unit and, where something was promised, its bound."""

    name: str
    value: float
    unit: str
    """`ratio` for what is compared within one run; times and rates carry their unit."""
    at_least: float | None = None
    at_most: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the promise is kept; a figure without a bound is information and always holds."""
        high_enough = self.at_least is None or self.value >= self.at_least
        low_enough = self.at_most is None or self.value <= self.at_most
        return high_enough and low_enough

    @property
    def bound(self) -> str:
        """The promise in words, empty for information."""
        words = [f">= {self.at_least:g}"] if self.at_least is not None else []
        return " and ".join([*words, *([f"<= {self.at_most:g}"] if self.at_most is not None else [])])

    def as_json(self) -> dict[str, Any]:
        """What a results file says of this figure; a bound that was not set is left out."""
        bounds = {"at_least": self.at_least, "at_most": self.at_most}
        stated = {name: bound for name, bound in bounds.items() if bound is not None}
        return {"name": self.name, "value": self.value, "unit": self.unit, **stated, "holds": self.holds}


@dataclass(frozen=True, kw_only=True)
class Context:
    """What a benchmark may rely on."""

    root: Path
    """The clone."""
    python: Path
    """The interpreter of .venv: function app, twin, command line."""
    training_python: Path
    """The interpreter of .venv-training: TensorFlow, Horovod; mpirun lies beside it."""
    scratch: Path
    """An empty folder that is removed afterwards."""
    say: Callable[[str], None]
    """Tell the user what is going on, one line at a time."""


class BenchmarkError(Exception):
    """A benchmark could not measure; the message says why and where to look."""


def median(samples: Iterable[float]) -> float:
    """The median of at least `MIN_SAMPLES` samples. Raises BenchmarkError when there are fewer."""
    taken = list(samples)
    if len(taken) < MIN_SAMPLES:
        raise BenchmarkError(f"a median needs at least {MIN_SAMPLES} samples, there are {len(taken)}")
    return statistics.median(taken)
