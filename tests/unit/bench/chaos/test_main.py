"""What `make chaos` ends with."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.chaos import __main__ as chaos
from bench.figures import BenchmarkError, Context, Figure


@pytest.mark.parametrize(("value", "status"), [(0.0, 0), (1.0, 1)])
def test_a_promise_that_broke_is_the_exit_status(
    value: float, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The figures are written either way."""

    def storm(_plan: object, _context: Context) -> list[Figure]:
        return [Figure(name="models of no run", value=value, unit="", at_least=0.0, at_most=0.0)]

    monkeypatch.setattr(chaos, "raise_chaos", storm)
    monkeypatch.setattr(chaos, "ROOT", tmp_path)
    monkeypatch.setattr(chaos, "RESULTS", tmp_path / "results")
    assert (status, True) == (chaos.main([]), (tmp_path / "results" / "chaos.json").is_file())


def test_a_storm_that_does_not_end_is_a_broken_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits in vain is told what is unfinished, and the status says so too."""

    def storm(_plan: object, _context: Context) -> list[Figure]:
        raise BenchmarkError("after 900 s of calm: without a run: chaos-007")

    monkeypatch.setattr(chaos, "raise_chaos", storm)
    assert 1 == chaos.main([])
