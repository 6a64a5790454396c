"""The operator's commands: what they ask for, and what they print."""

from __future__ import annotations

import re
from typing import Any

import pytest

from cli.dead_letters import describe as describe_letter
from cli.reconcile import describe as describe_sweep
from cli.runs import describe_request, listing
from cli.why import show
from tests.unit.cli.test_api_client import FunctionApp

LETTER: dict[str, Any] = {
    "dead_letter_id": "0123456789abcdef",
    "source": "shard-uploaded",
    "subject": "digits/v1/train-00000-of-00002.tfrecord",
    "error": "storage did not answer",
    "tries": 5,
    "died_at": "2026-11-20T12:00:00Z",
    "num_deaths": 2,
    "state": "waiting",
    "num_replays": 1,
    "replayed_at": "2026-11-20T11:00:00Z",
    "payload": '{"id": "e1"}',
    "is_whole": True,
}


def test_a_letter_is_shown_with_its_error_and_payload() -> None:
    """Everything that somebody needs who decides about a replay."""
    text = "\n".join(describe_letter(LETTER))
    wanted = [
        "waiting",
        "about digits/v1/train",
        "after 5 tries, 2 times",
        "replayed 1 times",
        "did not answer",
        '"id"',
    ]
    assert [] == [words for words in wanted if words not in text]


def test_a_letter_that_was_cut_says_so() -> None:
    """Its payload may be no JSON then."""
    text = "\n".join(describe_letter(LETTER | {"is_whole": False, "payload": "{half"}))
    assert "its beginning; it cannot be replayed):\n    {half" in text


def test_a_sweep_is_described_with_its_problems() -> None:
    """What failed is told line by line."""
    names = [
        "versions",
        "versions_unchanged",
        "shards_judged",
        "runs",
        "unknown_jobs",
        "notifications",
        "dead_letters",
    ]
    lines = list(describe_sweep({**dict.fromkeys(names, 3), "problems": ["look at job X: no answer"]}))
    assert ("3 dataset versions, 3 of them unchanged", "failed: look at job X: no answer") == (lines[0], lines[-1])


def test_paths_are_asked_for_as_given() -> None:
    """With parameters, and the key in its header."""
    app = FunctionApp(body={"dead_letters": []})
    with app.client() as client:
        client.get("/api/dead-letters", limit=5)
        client.post("/api/reconcile")
    assert [("GET", "/api/dead-letters?limit=5"), ("POST", "/api/reconcile")] == [
        (request.method, request.url.raw_path.decode()) for request in app.requests
    ]


def test_a_story_is_printed_with_what_is_awaited(capsys: pytest.CaptureFixture[str]) -> None:
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
    show({"kind": "version", "subject": "digits/v1", "lines": lines, "num_omitted": 3, "awaited": ["its run"]})
    said = capsys.readouterr().out
    wanted = ["version digits/v1", "3 older lines", "x: [red] gone", "12:00:01", "awaited now:\n  its run"]
    assert [] == [words for words in wanted if words not in said]


def test_what_repeats_is_told_once_with_how_often(capsys: pytest.CaptureFixture[str]) -> None:
    """Azure ML tells of a run several times a second; and a reason that begins with the part names it already."""
    line = {"subject": "v/x", "action": "event_suppressed", "reason": "x: old"}
    lines = [{**line, "at": f"2026-11-20T12:00:0{second}Z"} for second in range(3)]
    show({"kind": "version", "subject": "v", "lines": lines, "num_omitted": 0, "awaited": []})
    said = " ".join(capsys.readouterr().out.split())
    assert "12:00:00 event_suppressed x: old (3 times, the last 2026-11-20 12:00:02) nothing" in said


def test_a_story_at_its_end_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is awaited any more."""
    show({"kind": "run", "subject": "r", "lines": [], "num_omitted": 0, "awaited": []})
    assert "nothing is awaited" in capsys.readouterr().out


RUN_ID = "landfall-digits-20261121-232818-2244c0be11af-a1"
STORY: dict[str, Any] = {
    "kind": "version",
    "subject": "digits/v1",
    "num_omitted": 0,
    "awaited": [f"the end of run {RUN_ID}, and of a good many other things besides"],
    "lines": [
        {
            "at": "2026-11-20T12:00:00Z",
            "subject": RUN_ID,
            "action": "request_suppressed",
            "reason": "another handler is at it, until 2026-11-20 12:03:00 UTC at most, and then it is anybody's",
        }
    ],
}


def test_a_file_gets_a_line_for_each_line_of_a_story(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever pipes a story into grep finds whole lines, without spaces at their ends."""
    show(STORY)
    told = f"{RUN_ID}: {STORY['lines'][0]['reason']}"
    assert [
        "version digits/v1",
        f"2026-11-20 12:00:00  request_suppressed  {told}",
        "awaited now:",
        f"  {STORY['awaited'][0]}",
    ] == capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_terminal_cuts_no_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    """A run's name can be copied from a terminal of any usual width, and no line is wider than it."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(columns))
    show(STORY)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert (2, []) == (sum(RUN_ID in line for line in lines), [line for line in lines if len(line) > columns])


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("planned", "r: planned. Follow it with: landfall run r"),
        ("registered", "r has ended before: registered. Nothing new starts."),
        ("failed", "To train again: landfall submit digits/v1 --force"),
    ],
)
def test_a_request_that_meets_an_ended_run_starts_nothing_and_says_so(state: str, words: str) -> None:
    """Nobody waits for what has been trained already."""
    assert words in "\n".join(describe_request({"run_id": "r", "state": state}, "digits/v1"))


def test_that_a_dataset_has_no_runs_says_nothing_of_others() -> None:
    """A mistyped name is seen in the answer."""
    told = [list(listing([], None)), list(listing([], "digist"))]
    assert [["There are no runs yet."], ["There are no runs of dataset digist yet."]] == told
