"""A small storm over a twin: what `make chaos` does, in the time that a test may take."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.chaos.plan import ChaosPlan
from bench.chaos.run import raise_chaos
from bench.figures import Context
from tests.support.processes import REPOSITORY

pytestmark = [pytest.mark.slow, pytest.mark.twin, pytest.mark.timeout(1200)]

SMALL = ChaosPlan(versions=3, shards=4, seed=7, kill_after_s=(5.0, 9.0), calm_after_s=25.0, give_up_after_s=600.0)


def test_a_small_storm_breaks_no_promise(tmp_path: Path) -> None:
    """Events are lost, doubled and late, calls fail and hosts die: one run, one model, one notification each."""
    context = Context(
        root=REPOSITORY,
        python=REPOSITORY / ".venv" / "bin" / "python",
        training_python=REPOSITORY / ".venv-training" / "bin" / "python",
        scratch=tmp_path,
        say=lambda _: None,
    )
    figures = raise_chaos(SMALL, context)
    killed = next(figure.value for figure in figures if figure.name == "crashes survived")
    assert ([], True) == ([figure.name for figure in figures if not figure.holds], killed > 0)


def test_chaos_can_be_repeated() -> None:
    """The same seed gives the same uploads and faults, another one gives others."""
    same, other = ChaosPlan(versions=2, shards=3, seed=5), ChaosPlan(versions=2, shards=3, seed=6)
    again = ChaosPlan(versions=2, shards=3, seed=5)
    assert (same.uploads(), same.event_faults("storage")) == (again.uploads(), again.event_faults("storage"))
    assert (same.uploads(), same.event_faults("storage")) != (other.uploads(), other.event_faults("storage"))
