"""Reconcile and dead-letters: what events have missed, and what was given up."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cli.remote.reconcile import describe_letter
from tests.support.terminal import landfall
from tests.unit.cli.fake_function_app import served

NUMBERS = (
    "versions",
    "versions_unchanged",
    "shards_missed",
    "runs",
    "unknown_jobs",
    "notifications",
    "dead_letters",
)


def sweep(state: str, problems: list[str] | None = None, error: str | None = None) -> dict[str, Any]:
    """A requested sweep as the API shows it; without problems it has no report yet."""
    report = None if problems is None else {**dict.fromkeys(NUMBERS, 3), "problems": problems}
    return {"sweep_id": "s1", "state": state, "report": report, "error": error}


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask again at once."""
    monkeypatch.setattr("cli.remote.reconcile.FIRST_POLL_S", 0.0)


@pytest.mark.parametrize("problems", [[], ["look at job X: no answer"]])
def test_a_sweep_is_described_with_its_problems(capsys: pytest.CaptureFixture[str], problems: list[str]) -> None:
    """Each failed part is a line, and makes the exit status 1."""
    seen: list[tuple[str, Any]] = []
    with served(sweep("failed" if problems else "done", problems), seen) as url:
        status, out, err = landfall(capsys, "reconcile", "--url", url, "--key", "k")
    first, *_, last = out.splitlines()
    assert (len(problems), [("/api/reconcile", None)]) == (status, seen)
    assert "3 dataset versions, 3 of them unchanged" == first
    assert last == ("failed: look at job X: no answer" if problems else "3 notifications tried, 3 dead letters found")
    assert bool(problems) == ("1 part of the sweep failed. The next sweep tries them again." in err)


def test_a_sweep_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    """Standard error says what it does, once for each state; standard output has the result only."""
    answers = [sweep("queued"), sweep("queued"), sweep("running"), sweep("running"), sweep("done", [])]
    seen: list[tuple[str, Any]] = []
    with served(iter(answers), seen) as url:
        status, out, err = landfall(capsys, "reconcile", "--json", "--url", url, "--key", "k")
    assert (0, 5, answers[-1]) == (status, len(seen), json.loads(out))
    assert ["The sweep is queued.", "The sweep is running."] == [
        line.partition(" Sec")[0] for line in err.splitlines()
    ]


def test_a_sweep_without_an_end_is_given_up(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No command waits forever for an app whose queue is not read."""
    monkeypatch.setattr("cli.remote.reconcile.GIVE_UP_S", -1.0)
    with served(sweep("queued")) as url:
        status, _, err = landfall(capsys, "reconcile", "--url", url, "--key", "k")
    assert (1, True) == (status, "The sweep did not end within" in err)


def test_a_sweep_that_fails_as_a_whole_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    """There is no report then."""
    with served(sweep("failed", error="it did not end within 35 minutes")) as url:
        status, out, err = landfall(capsys, "reconcile", "--url", url, "--key", "k")
    assert (1, "") == (status, out)
    assert "The sweep failed: it did not end within 35 minutes. Look at the app's log" in err


def test_an_answer_of_an_older_app_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """It has the report itself, without a state."""
    with served(dict.fromkeys(NUMBERS, 3) | {"problems": []}) as url:
        status, _, err = landfall(capsys, "reconcile", "--url", url, "--key", "k")
    assert (1, True) == (status, "answered with an unknown state None. Is it an older version?" in err)


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


def test_a_dead_letter_is_shown_with_its_error_and_payload() -> None:
    """Everything that a decision on a replay needs."""
    assert [
        "0123456789abcdef: waiting",
        "  from shard-uploaded, about digits/v1/train-00000-of-00002.tfrecord",
        "  failed 2026-11-20 12:00:00 UTC after 5 tries, 2 times in all",
        "  replayed 1 time, last 2026-11-20 11:00:00 UTC",
        "  error: storage did not answer",
        "  payload:",
        "    {",
        '      "id": "e1"',
        "    }",
    ] == list(describe_letter(LETTER))


def test_a_payload_that_was_cut_is_marked() -> None:
    """It may be no JSON then."""
    text = "\n".join(describe_letter(LETTER | {"is_whole": False, "payload": "{half"}))
    assert "beginning only; it cannot be replayed):\n    {half" in text


def test_a_payload_that_is_nested_too_deeply_is_shown_as_it_is() -> None:
    """Anyone who may write into a queue chooses the text of a dead letter."""
    payload = "[" * 100_000
    assert f"    {payload}" == list(describe_letter(LETTER | {"payload": payload}))[-1]


@pytest.mark.parametrize(("subject", "look"), [("digits/v1", "why digits/v1"), ("", "dead-letters show 0a")])
def test_a_replay_says_where_to_look(capsys: pytest.CaptureFixture[str], subject: str, look: str) -> None:
    """A letter whose subject is unknown has no history."""
    seen: list[tuple[str, Any]] = []
    with served({"subject": subject, "source": "shard-uploaded"}, seen) as url:
        status, out, _ = landfall(capsys, "dead-letters", "replay", "0a", "--url", url, "--key", "k")
    assert (0, [("/api/dead-letters/0a/replay", None)]) == (status, seen)
    assert f"0a: sent to shard-uploaded again. To see the result: landfall {look}\n" == out


def test_a_list_is_asked_for_with_its_limit(capsys: pytest.CaptureFixture[str]) -> None:
    """An empty one says so."""
    seen: list[tuple[str, Any]] = []
    with served({"dead_letters": []}, seen) as url:
        status, out, _ = landfall(capsys, "dead-letters", "list", "--limit", 5, "--url", url, "--key", "k")
    assert (0, "There are no dead letters.\n", [("/api/dead-letters?limit=5", None)]) == (status, out, seen)


def test_dead_letters_are_broken_between_words_on_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Listed and shown; a pipe gets each line whole."""
    long = LETTER | {"error": "storage did not answer " * 6}
    with served({**long, "dead_letters": [long]}) as url:
        asked = [("dead-letters", *words, "--url", url, "--key", "k") for words in (("list",), ("show", "0a"))]
        piped = [landfall(capsys, *words)[1] for words in asked]
        monkeypatch.setattr("cli.screen.columns", lambda _: 60)
        narrow = [landfall(capsys, *words)[1] for words in asked]
    for whole, broken in zip(piped, narrow, strict=True):
        assert max(map(len, whole.splitlines())) > 100
        assert max(map(len, broken.splitlines())) <= 60
        assert whole.split() == broken.split()
