"""``landfall logs``: every line once, until the run has ended."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from cli.remote.api_client import ApiClient
from shared.progress import RankPlace
from tests.support.terminal import landfall

RUN = "landfall-digits-v1-0123456789ab-a1"
PLACE = RankPlace(rank=3, world_size=4, node=1, host="node-b", met=("node-a", "node-b"))
Capture = pytest.CaptureFixture[str]


def part(text: str = "", **members: Any) -> dict[str, Any]:
    """One answer of the API."""
    empty = {"run_id": RUN, "rank": 3, "num_ranks": 4, "place": None, "problem": None}
    return {**empty, "log_text": text, "unfinished": "", "next": 0, "has_ended": False, **members}


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Play a function app that gives these answers one after the other; an exception is raised."""
    monkeypatch.setattr("cli.remote.logs.FIRST_POLL_S", 0.0)
    monkeypatch.setattr("cli.remote.logs.LAST_POLL_S", 0.0)

    def play(*answers: Any) -> list[str]:
        waiting, asked = [*answers], []

        def answer(request: httpx.Request) -> httpx.Response:
            asked.append(request.url.params["after"])
            now = waiting.pop(0)
            if isinstance(now, Exception):
                raise now
            return now if isinstance(now, httpx.Response) else httpx.Response(200, json=now)

        def client(*_: object) -> ApiClient:
            return ApiClient("https://app.example", "k", transport=httpx.MockTransport(answer))

        monkeypatch.setattr("cli.options.api_client", client)
        return asked

    return play


def test_a_log_is_read_to_its_end(answering: Callable[..., list[str]], capsys: Capture) -> None:
    """It takes as many requests as needed; the rank's place is printed, and the unfinished line only once."""
    asked = answering(
        part(f"{PLACE.to_line()}\none\n", next=10),
        part("two\n", next=20, unfinished="thr"),
        part(next=20, unfinished="thr"),
    )
    status, out, _ = landfall(capsys, "logs", RUN, "--rank", "3")
    assert (0, ["0", "10", "20"]) == (status, asked)
    assert [PLACE.in_words(), "one", "two", "thr"] == out.splitlines()


def test_a_run_is_followed_until_it_has_ended(answering: Callable[..., list[str]], capsys: Capture) -> None:
    """Answers that fail on their way, or say that the app is not there, lose nothing and repeat nothing."""
    asked = answering(
        part(problem="The job has not been submitted, so it has no log."),
        part(problem="The job has not been submitted, so it has no log."),
        part("one\n", next=4, unfinished="tw"),
        httpx.ReadTimeout("cut after 230 s"),
        httpx.Response(502, text="<html>"),
        part(next=4, unfinished="tw"),
        part("two\nend", next=11, has_ended=True),
    )
    status, out, err = landfall(capsys, "logs", RUN, "-f")
    assert (0, ["0", "0", "0", "4", "4", "4", "4"], ["one", "two", "end"]) == (status, asked, out.splitlines())
    assert (1, 2) == (err.count("has not been submitted"), err.count("Trying again."))


def test_answers_are_printed_as_json(answering: Callable[..., list[str]], capsys: Capture) -> None:
    """Each on a line of its own."""
    answers = [part("one\n", next=4), part("two \x1b[2J\n", next=8, has_ended=True)]
    answering(*answers)
    status, out, _ = landfall(capsys, "logs", RUN, "--json")
    assert (0, answers) == (status, [json.loads(line) for line in out.splitlines()])


def test_a_log_commands_no_terminal(answering: Callable[..., list[str]], capsys: Capture) -> None:
    """A script's output is foreign."""
    answering(part("a\x1b[2Jb\x07\u202e\n", next=9, has_ended=True))
    assert (0, "a\\x1b[2Jb\\x07\\u202e\n") == landfall(capsys, "logs", RUN)[:2]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (part(problem="The job has written no log yet."), f"To wait for it: landfall logs {RUN} --rank 0 --follow"),
        (part(problem="The log cannot be read now: no role", has_ended=True), "no role"),
        (httpx.Response(404, json={"code": "not_found", "detail": "it has 4 ranks"}), "it has 4 ranks"),
        (httpx.ConnectError("refused"), "cannot be reached"),
    ],
)
def test_what_cannot_be_shown_is_an_error(
    answering: Callable[..., list[str]], capsys: Capture, answer: Any, says: str
) -> None:
    """The error comes before anything is read."""
    answering(answer)
    status, out, err = landfall(capsys, "logs", RUN)
    assert (1, "", True) == (status, out, says in err)


def test_a_rank_is_a_number(capsys: Capture) -> None:
    """No negative one."""
    assert 2 == landfall(capsys, "logs", RUN, "--rank", "-1")[0]
