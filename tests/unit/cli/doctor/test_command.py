"""`landfall doctor`: what it prints, and its exit codes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.terminal import landfall
from tests.unit.cli.fake_function_app import served

OK = {"part": "queues", "subject": "queue q", "state": "ok", "says": "about 0 messages in it", "fix": ""}
WRONG = OK | {"state": "wrong", "says": "it does not exist", "fix": "azd provision"}
UNKNOWN = OK | {"state": "unknown", "says": "there was no answer within 45 s", "fix": "landfall doctor"}
ABSENT = OK | {"state": "absent", "says": "a key opens it"}


def diagnosis(*checks: dict[str, Any]) -> dict[str, Any]:
    """What the app answers."""
    return {"at": "2026-11-20T12:00:00Z", "in_azure": False, "checks": list(checks)}


@pytest.mark.parametrize(
    ("checks", "status"),
    [([OK], 0), ([OK, ABSENT], 0), ([OK, UNKNOWN], 3), ([WRONG, UNKNOWN, OK], 1)],
)
def test_the_exit_code_says_whether_something_is_wrong(
    checks: list[dict[str, Any]], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """The JSON has every check, and the same code."""
    with served(diagnosis(*checks), status=200) as url:
        found, out, _ = landfall(capsys, "doctor", "--json", "--url", url, "--key", "k")
    assert (status, {"checks": checks, "exit_code": status}) == (found, json.loads(out))


def test_each_finding_has_the_command_that_mends_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Below its line; what the deployment does not have is said, and not passed as good."""
    with served(diagnosis(OK, WRONG, ABSENT), status=200) as url:
        _, out, _ = landfall(capsys, "doctor", "--url", url, "--key", "k")
    assert [
        "ok         queues       queue q: about 0 messages in it",
        "WRONG      queues       queue q: it does not exist",
        "           to mend it:  azd provision",
        "none here  queues       queue q: a key opens it",
        "3 checks: 1 wrong, 0 could not be looked at, 1 of things that this deployment does not have",
    ] == out.splitlines()


def test_an_app_that_does_not_answer_is_the_finding(capsys: pytest.CaptureFixture[str]) -> None:
    """It has what the app said, and the command that says more."""
    refusal = {"error": {"code": "misconfigured", "message": "LANDFALL_WORKSPACE is not set", "details": []}}
    with served(refusal, status=503) as url:
        status, out, _ = landfall(capsys, "doctor", "--url", url, "--key", "k")
    assert (1, "WRONG      function app " + url + ": LANDFALL_WORKSPACE is not set") == (status, out.splitlines()[0])
