"""Faults by name: which job meets them, how often, and where people read of them."""

from __future__ import annotations

import pytest

from local_azure.azure_ml.faults import (
    FAULTS,
    SDK_TRIES,
    AnswerFault,
    JobFaults,
    LaunchFault,
    LifeFault,
    fault_named,
)
from tests.support.processes import REPOSITORY


def test_a_fault_is_for_the_next_jobs_of_its_name() -> None:
    """It applies to the requested number of jobs; `landfall up --fault` breaks every other start."""
    faults = JobFaults(LaunchFault.NO_GPU)
    faults.add(LaunchFault.ONE_RANK, "digits", 2)
    seen = [faults.next_for(job, LaunchFault) for job in ("cats-a1", "digits-a1", "digits-a2", "digits-a3")]
    always, once = LaunchFault.NO_GPU, LaunchFault.ONE_RANK
    assert ([always, once, once, always], 0) == (seen, faults.pending())


def test_each_kind_of_fault_waits_for_its_own_moment() -> None:
    """A submission does not use up what is meant for the job's life."""
    faults = JobFaults()
    faults.add(LifeFault.PREEMPTED, "", 1)
    assert (None, None, LifeFault.PREEMPTED) == (
        faults.next_for("a", AnswerFault),
        faults.next_for("a", LaunchFault),
        faults.next_for("a", LifeFault),
    )


@pytest.mark.parametrize(
    ("fault", "times"), [(AnswerFault.FORBIDDEN, 1), (AnswerFault.UNAVAILABLE, SDK_TRIES)], ids=str
)
def test_a_permanent_answer_is_for_the_first_submission_of_each_job(fault: AnswerFault, times: int) -> None:
    """It meets all of the SDK's attempts; afterwards the job can be submitted, so that people see both."""
    faults = JobFaults(fault)
    seen = [[faults.next_for(job, AnswerFault) for _ in range(times + 1)] for job in ("digits-a1", "cats-a1")]
    assert [[fault] * times + [None]] * 2 == seen


def test_a_job_that_ends_before_its_fault_leaves_it_to_the_next() -> None:
    """It comes before the faults that follow it; what was met is counted by job."""
    faults = JobFaults(LifeFault.SLOW_BUILD)
    faults.add(LifeFault.PREEMPTED, "digits", 1)
    faults.add(LifeFault.CAPACITY, "digits", 1)
    for job in ("digits-a1", "digits-a2"):
        faults.next_for(job, LifeFault)
    faults.next_for("cats-a1", LifeFault)
    faults.give_back("digits-a2", LifeFault.CAPACITY)
    faults.give_back("digits-a1", LifeFault.PREEMPTED)
    faults.give_back("cats-a1", LifeFault.SLOW_BUILD)
    assert ([], 2, LifeFault.PREEMPTED) == (faults.met(), faults.pending(), faults.next_for("digits-b1", LifeFault))
    assert [(LifeFault.PREEMPTED, "digits-b1")] == faults.met()


def test_faults_can_be_taken_back() -> None:
    """What follows is as it should be."""
    faults = JobFaults()
    faults.add(LaunchFault.ONE_NODE, "", 3)
    faults.clear()
    assert (0, None) == (faults.pending(), faults.next_for("digits-a1", LaunchFault))


def test_every_fault_has_a_name_of_its_own_and_a_description() -> None:
    """The option takes all of them."""
    known = [*LaunchFault, *LifeFault, *AnswerFault]
    assert (known, len(known)) == (sorted(FAULTS, key=known.index), len(set(map(str, known))))
    assert known == [fault_named(str(fault)) for fault in known]


def test_the_documentation_has_the_same_table() -> None:
    """One row for each fault, in the words of the code."""
    rows = [f"| `{fault}` | {text} |" for fault, text in FAULTS.items()]
    lines = (REPOSITORY / "docs" / "attempts.md").read_text().splitlines()
    assert rows == [line for line in lines if line in rows]
