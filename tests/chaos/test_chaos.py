"""A small chaos run over a twin, and the exit status and the plan of `make chaos`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos import __main__ as chaos
from tests.chaos.plan import ChaosPlan
from tests.chaos.report import ChaosError, Finding
from tests.chaos.run import run_chaos

SMALL = ChaosPlan(versions=4, shards=4, seed=7, kill_after_s=(5.0, 9.0), calm_after_s=25.0, give_up_after_s=600.0)


@pytest.mark.slow
@pytest.mark.twin
@pytest.mark.timeout(1200)
def test_a_small_storm_breaks_no_promise(tmp_path: Path) -> None:
    """Events are lost, doubled and late, calls fail and hosts die: one run, one model, one notification each."""
    findings = run_chaos(SMALL, tmp_path, lambda _: None)
    killed = next(finding.value for finding in findings if finding.name == "crashes survived")
    assert ([], True) == ([finding.name for finding in findings if not finding.holds], killed > 0)


def drawn(plan: ChaosPlan) -> tuple[object, ...]:
    """Everything that is drawn before the storm."""
    return plan.uploads(), plan.changes(), plan.event_faults("storage")


def test_the_same_seed_gives_the_same_storm() -> None:
    """Uploads, changes and event faults follow from the seed; another seed gives others."""
    same, other, again = (ChaosPlan(versions=2, shards=3, seed=seed) for seed in (5, 6, 5))
    assert drawn(same) == drawn(again) != drawn(other)


@pytest.mark.parametrize(("value", "status"), [(0.0, 0), (1.0, 1)])
def test_a_broken_promise_is_the_exit_status(
    value: float, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The results are written in both cases."""

    def storm(_plan: ChaosPlan, _scratch: Path, _say: Callable[[str], None]) -> list[Finding]:
        return [Finding(name="models of unknown runs", value=value, promised=0.0)]

    monkeypatch.setattr(chaos, "run_chaos", storm)
    monkeypatch.setattr(chaos, "RESULTS", tmp_path / "results" / "chaos.json")
    assert (status, True) == (chaos.main([]), (tmp_path / "results" / "chaos.json").is_file())


def test_a_storm_that_does_not_end_is_a_broken_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names what is unfinished, and the exit status is 1."""

    def storm(_plan: ChaosPlan, _scratch: Path, _say: Callable[[str], None]) -> list[Finding]:
        raise ChaosError("after 900 s of calm: without a run: chaos-007")

    monkeypatch.setattr(chaos, "run_chaos", storm)
    assert 1 == chaos.main([])
