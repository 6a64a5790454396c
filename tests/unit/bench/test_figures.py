"""Figures keep or break their promise by their bounds alone, and results files say the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.figures import BenchmarkError, Figure, median, write_results


@pytest.mark.parametrize(("value", "holds"), [(0.92, False), (0.93, True), (1.1, True), (1.2, False)])
def test_a_figure_holds_within_its_bounds(value: float, *, holds: bool) -> None:
    """The bounds themselves are allowed."""
    assert holds == Figure(name="efficiency", value=value, unit="ratio", at_least=0.93, at_most=1.1).holds


def test_a_figure_without_bounds_is_information() -> None:
    """Images per second describe the machine and promise nothing."""
    assert (True, "") == (Figure(name="x", value=-1.0, unit="s").holds, Figure(name="x", value=-1.0, unit="s").bound)


def test_a_median_of_few_samples_is_refused() -> None:
    """Few samples say little on a shared machine."""
    assert 3.0 == median([5.0, 1.0, 3.0, 4.0, 2.0])
    with pytest.raises(BenchmarkError, match="at least 5 samples, there are 4"):
        median([1.0, 2.0, 3.0, 4.0])


def test_results_say_what_was_measured_and_what_was_promised(tmp_path: Path) -> None:
    """The file is for programs; outside git the commit is unknown."""
    figures = [
        Figure(name="import", value=0.5, unit="s of CPU", at_most=0.4),
        Figure(name="rate", value=2.0, unit="1/s"),
    ]
    results = json.loads(write_results(tmp_path / "results", "cold_start", figures, tmp_path).read_text())
    expected = [
        {"name": "import", "value": 0.5, "unit": "s of CPU", "at_most": 0.4, "holds": False},
        {"name": "rate", "value": 2.0, "unit": "1/s", "holds": True},
    ]
    assert ("cold_start", "unknown", expected) == (results["benchmark"], results["commit"], results["figures"])
    assert {"processor", "cores", "memory_gib", "system", "python"} == set(results["machine"])
