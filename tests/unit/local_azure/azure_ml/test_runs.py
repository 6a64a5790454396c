"""Moves between states of a run, and their record."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from local_azure.azure_ml.runs import TERMINAL, IllegalTransitionError, Run, RunBook, RunState, may_follow
from local_azure.azure_ml.store import Store

WALK = [
    RunState.NOT_STARTED,
    RunState.STARTING,
    RunState.PREPARING,
    RunState.QUEUED,
    RunState.RUNNING,
    RunState.FINALIZING,
    RunState.COMPLETED,
]


def test_the_walk_is_forward_one_step_at_a_time() -> None:
    """Among the states of a good run only neighbours follow each other."""
    allowed = [(one, other) for one, other in itertools.product(WALK, WALK) if may_follow(one, other)]
    assert list(itertools.pairwise(WALK)) == allowed


@pytest.mark.parametrize("ended", sorted(TERMINAL))
def test_nothing_follows_an_end(ended: RunState) -> None:
    """Completed, Failed and Canceled are final."""
    assert [] == [state for state in RunState if may_follow(ended, state)]


def test_a_cancel_request_ends_canceled_or_failed() -> None:
    """And in nothing else."""
    followers = {state for state in RunState if may_follow(RunState.CANCEL_REQUESTED, state)}
    assert {RunState.CANCELED, RunState.FAILED} == followers


def test_a_run_may_be_canceled_until_it_finalizes() -> None:
    """Afterwards its work is done."""
    cancelable = [state for state in WALK if may_follow(state, RunState.CANCEL_REQUESTED)]
    assert WALK[:5] == cancelable


def a_run(name: str = "r1") -> Run:
    """A new run."""
    return Run(
        name=name,
        workspace_id="/subscriptions/S/workspaces/W",
        properties={"experimentName": "digits"},
        status=RunState.NOT_STARTED,
        created_at="2026-11-20T00:00:00Z",
    )


def test_moves_are_recorded_and_reported_and_survive(tmp_path: Path) -> None:
    """Every move is reported in order, and a new book over the same file knows the last one."""
    reported: list[RunState] = []
    book = RunBook(Store(tmp_path / "state"), lambda run: reported.append(run.status))
    book.add(a_run())
    for state in WALK[1:]:
        book.move(a_run().job_id, state)
    kept = RunBook(Store(tmp_path / "state"), lambda _run: None).current(a_run().job_id.upper())
    assert (WALK, RunState.COMPLETED, True) == (reported, kept.status, kept.ended)
    assert None not in {kept.started_at, kept.ended_at}


def test_an_illegal_move_names_both_states(tmp_path: Path) -> None:
    """And changes nothing."""
    book = RunBook(Store(tmp_path / "state"), lambda _run: None)
    book.add(a_run())
    with pytest.raises(IllegalTransitionError, match="run r1 is NotStarted and cannot become Completed"):
        book.move(a_run().job_id, RunState.COMPLETED)
    assert RunState.NOT_STARTED == book.current(a_run().job_id).status


def test_runs_of_another_workspace_stay_apart(tmp_path: Path) -> None:
    """A prefix of a workspace's name is not that workspace."""
    book = RunBook(Store(tmp_path / "state"), lambda _run: None)
    book.add(a_run())
    found = [
        [run.name for run in book.below(prefix)]
        for prefix in ("/subscriptions/s/workspaces/w", "/subscriptions/s/workspaces/")
    ]
    assert [["r1"], ["r1"]] == found
    assert [] == book.below("/subscriptions/S/workspaces/W/jobs/r")


def test_the_experiment_of_a_run_is_stable() -> None:
    """Its id depends on workspace and name alone, and there is a default."""
    nameless = Run(**{**vars(a_run()), "properties": {}})
    assert (a_run("r1").experiment_id, "Default") == (a_run("r2").experiment_id, nameless.experiment_name)
