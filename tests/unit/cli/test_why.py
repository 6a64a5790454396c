"""`landfall why`: how a history is printed."""

from __future__ import annotations

import re
from typing import Any

import pytest

from cli.why import show_history


def test_a_history_is_printed_with_what_is_awaited(capsys: pytest.CaptureFixture[str]) -> None:
    """Lines of parts name them without repeating the subject; brackets in a reason are no markup."""
    lines = [
        {
            "at": "2026-11-20T12:00:00Z",
            "subject": "digits/v1/x",
            "action": "event_suppressed",
            "reason": "[red] gone",
        },
        {"at": "2026-11-20T12:00:01Z", "subject": "digits/v1", "action": "version_closed", "reason": "whole"},
    ]
    show_history(
        {"kind": "version", "subject": "digits/v1", "lines": lines, "num_omitted": 3, "awaited": ["its run"]}
    )
    printed = capsys.readouterr().out
    wanted = ["version digits/v1", "3 older entries", "x: [red] gone", "12:00:01", "awaited now:\n  its run"]
    assert [] == [words for words in wanted if words not in printed]


def test_repetitions_are_one_line_with_their_number(capsys: pytest.CaptureFixture[str]) -> None:
    """Azure ML reports a run several times a second. A reason that begins with the part's name does not repeat it."""
    line = {"subject": "v/x", "action": "event_suppressed", "reason": "x: old"}
    lines = [{**line, "at": f"2026-11-20T12:00:0{second}Z"} for second in range(3)]
    show_history({"kind": "version", "subject": "v", "lines": lines, "num_omitted": 0, "awaited": []})
    printed = " ".join(capsys.readouterr().out.split())
    assert "12:00:00 event_suppressed x: old (3 times, the last 2026-11-20 12:00:02) nothing" in printed


def test_a_history_at_its_end_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is awaited any more."""
    show_history({"kind": "run", "subject": "r", "lines": [], "num_omitted": 0, "awaited": []})
    assert "nothing is awaited" in capsys.readouterr().out


RUN_ID = "landfall-digits-20261121-232818-2244c0be11af-a1"
HISTORY: dict[str, Any] = {
    "kind": "version",
    "subject": "digits/v1",
    "num_omitted": 0,
    "awaited": [f"the end of run {RUN_ID}, and of a good many other things besides"],
    "lines": [
        {
            "at": "2026-11-20T12:00:00Z",
            "subject": RUN_ID,
            "action": "request_suppressed",
            "reason": "another handler is at it, until 2026-11-20 12:03:00 UTC at most; then another one may take it",
        }
    ],
}


def test_a_file_gets_a_line_for_each_line_of_a_history(capsys: pytest.CaptureFixture[str]) -> None:
    """A search by grep finds whole lines, without spaces at their ends."""
    show_history(HISTORY)
    text = f"{RUN_ID}: {HISTORY['lines'][0]['reason']}"
    assert [
        "version digits/v1",
        f"2026-11-20 12:00:00  request_suppressed  {text}",
        "awaited now:",
        f"  {HISTORY['awaited'][0]}",
    ] == capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_terminal_cuts_no_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    """A run's name can be copied from a terminal of any usual width, and no line is wider than it."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(columns))
    show_history(HISTORY)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert (2, []) == (sum(RUN_ID in line for line in lines), [line for line in lines if len(line) > columns])
