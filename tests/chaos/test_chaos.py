"""A small chaos run over a twin, and the exit status and the plan of `make chaos`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from local_azure.azure_ml.faults import FAULTS, AnswerFault, JobFaults, LaunchFault, LifeFault
from tests.chaos import __main__ as chaos
from tests.chaos.faults import ENDS, ONE_EACH
from tests.chaos.plan import ChaosPlan
from tests.chaos.report import ChaosError, Finding
from tests.chaos.run import run_chaos

SMALL = ChaosPlan(versions=6, shards=4, seed=62, kill_after_s=(5.0, 9.0), calm_after_s=25.0)
"""Every layout once. With this seed the table changes, and the files that nothing ends do not: it costs a minute."""


@pytest.mark.slow
@pytest.mark.twin
@pytest.mark.timeout(1500)
def test_a_small_storm_breaks_no_promise(tmp_path: Path) -> None:
    """Events are lost, doubled and late, calls fail and hosts die: one run, one model, one notification each."""
    findings = run_chaos(SMALL, tmp_path, lambda _: None)
    killed = next(finding.value for finding in findings if finding.name == "crashes survived")
    assert ([], True) == ([finding.name for finding in findings if not finding.holds], killed > 0)


def drawn(plan: ChaosPlan) -> tuple[object, ...]:
    """Everything that is drawn before the storm."""
    return plan.uploads(), plan.changes(), plan.job_faults(), plan.event_faults("storage")


def test_the_same_seed_gives_the_same_storm() -> None:
    """Uploads, changes and event faults follow from the seed; another seed gives others."""
    same, other, again = (ChaosPlan(versions=2, shards=3, seed=seed) for seed in (5, 6, 5))
    assert drawn(same) == drawn(again) != drawn(other)


PLANS = [ChaosPlan(versions=versions, shards=3, seed=seed) for versions in (4, 14, 50) for seed in (1, 2, 3)]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: f"{plan.versions}-{plan.seed}")
def test_each_fault_meets_a_job_before_the_first_job_of_its_version_succeeds(plan: ChaosPlan) -> None:
    """Later there may be no job; the emulator's own list deals the faults out here."""
    whole = [dataset for dataset, content in plan.last_fingerprints().items() if content]
    faults, planned = JobFaults(), plan.job_faults()
    for one in planned:
        faults.add(one.fault, f"-{one.dataset}-", one.times)
    for dataset in whole:
        while not one_job_succeeds(faults, f"landfall-{dataset}-v1-a1"):
            continue
    left_out = FAULTS.keys() - {one.fault for one in planned}
    assert (0, sorted(whole)) == (faults.pending(), sorted({one.dataset for one in planned}))
    assert sum(max(0, len(some) - len(whole)) for some in ONE_EACH) == len(left_out)


def one_job_succeeds(faults: JobFaults, job: str) -> bool:
    """Let one job meet its faults; every answer is followed by another submission."""
    while (answer := faults.next_for(job, AnswerFault)) is not None:
        if answer in ENDS:
            return False
    return faults.next_for(job, LifeFault) not in ENDS and faults.next_for(job, LaunchFault) not in ENDS


def test_the_faults_of_three_storms_are_all_that_azure_ml_has() -> None:
    """The sizes are those with which they pass; the order, the jobs and the repetitions differ."""
    storms = [ChaosPlan(versions=14, shards=6, seed=seed).job_faults() for seed in (1, 2, 3)]
    assert [set(FAULTS)] * 3 == [{one.fault for one in storm} for storm in storms]
    assert 3 == len({tuple(storm) for storm in storms})


@pytest.mark.parametrize(("value", "status"), [(0.0, 0), (1.0, 1)])
def test_a_broken_promise_is_the_exit_status(
    value: float, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The results are written in both cases, and a sentence names what broke."""

    def storm(_plan: ChaosPlan, _scratch: Path, _say: Callable[[str], None]) -> list[Finding]:
        return [Finding(name="models of unknown runs", value=value, promised=0.0)]

    monkeypatch.setattr(chaos, "run_chaos", storm)
    monkeypatch.setattr(chaos, "RESULTS", tmp_path / "results" / "chaos.json")
    assert (status, True) == (chaos.main([]), (tmp_path / "results" / "chaos.json").is_file())
    sentence = "a promise broke: models of unknown runs: 1 seen, promised 0"
    assert bool(status) == (sentence in capsys.readouterr().out)


def test_a_storm_that_does_not_end_is_a_broken_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names what is unfinished, and the exit status is 1."""

    def storm(_plan: ChaosPlan, _scratch: Path, _say: Callable[[str], None]) -> list[Finding]:
        raise ChaosError("after 900 s of calm: without a run: chaos-007")

    monkeypatch.setattr(chaos, "run_chaos", storm)
    assert 1 == chaos.main([])
