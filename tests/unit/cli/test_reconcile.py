"""`landfall reconcile`: what it sends, and what it prints."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.terminal import landfall
from tests.unit.cli.fake_function_app import served

NUMBERS = (
    "versions",
    "versions_unchanged",
    "shards_judged",
    "runs",
    "unknown_jobs",
    "notifications",
    "dead_letters",
)


@pytest.mark.parametrize("problems", [[], ["look at job X: no answer"]])
def test_a_sweep_is_described_with_its_problems(capsys: pytest.CaptureFixture[str], problems: list[str]) -> None:
    """Each failed part is a line, and makes the exit status 1."""
    seen: list[tuple[str, Any]] = []
    with served({**dict.fromkeys(NUMBERS, 3), "problems": problems}, seen) as url:
        status, out, err = landfall(capsys, "reconcile", "--url", url, "--key", "k")
    first, *_, last = out.splitlines()
    assert (len(problems), [("/api/reconcile", None)]) == (status, seen)
    assert "3 dataset versions, 3 of them unchanged" == first
    assert last == ("failed: look at job X: no answer" if problems else "3 notifications tried, 3 dead letters found")
    assert bool(problems) == ("1 parts of the sweep failed. The next sweep tries them again." in err)
