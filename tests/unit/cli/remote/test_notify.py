"""`landfall notify test`: what each recipient answered."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.terminal import landfall
from tests.unit.cli.fake_function_app import served

TESTS = {
    "tests": [
        {"recipient": "topic", "reached": True, "answer": "took the message"},
        {"recipient": "apprise:TEAM", "reached": False, "answer": "apprise:TEAM refused: 401"},
    ]
}


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_each_answer_is_shown_and_a_failure_is_the_exit_code(
    capsys: pytest.CaptureFixture[str], flags: list[str]
) -> None:
    """The answer is shown as text or as JSON; the request names the chosen recipient."""
    seen: list[tuple[str, Any]] = []
    with served(TESTS, seen) as url:
        status, out, err = landfall(
            capsys, "notify", "test", "digits", "--recipient", "apprise:TEAM", *flags, "--url", url, "--key", "k"
        )
    assert (1, [("/api/pipelines/digits/notifications/test?recipient=apprise%3ATEAM", None)]) == (status, seen)
    assert "Not reached: apprise:TEAM." in err
    if flags:
        assert TESTS == json.loads(out)
    else:
        assert [
            "reached  topic: took the message",
            "FAILED   apprise:TEAM: apprise:TEAM refused: 401",
        ] == out.splitlines()
