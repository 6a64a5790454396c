"""`landfall doctor`: what it prints, and its exit codes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from cli.deploy.workspace import WorkspaceId
from cli.doctor.azure import Clusters, Deployment
from cli.doctor.command import examine, exit_code
from function_app.domain.checks import Check, CheckState
from tests.support.terminal import landfall
from tests.unit.cli.fake_function_app import FunctionApp, served

W = (
    "/subscriptions/s/resourceGroups/g/providers/Microsoft.MachineLearningServices/workspaces/w"
    "/environments/landfall-training"
)

OK = {"part": "queues", "subject": "queue q", "state": "ok", "says": "about 0 messages in it", "fix": ""}
WRONG = OK | {"state": "wrong", "says": "it does not exist", "fix": "azd provision"}
UNKNOWN = OK | {"state": "unknown", "says": "there was no answer within 45 s", "fix": "landfall doctor"}
ABSENT = OK | {"state": "absent", "says": "a key opens it"}


def diagnosis(*checks: dict[str, Any]) -> dict[str, Any]:
    """What the app answers."""
    return {"at": datetime.now(UTC).isoformat(), "in_azure": False, "checks": list(checks)}


@pytest.fixture(autouse=True)
def no_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide a twin that runs on this machine."""
    monkeypatch.setattr("cli.doctor.emulator.running_twin_of_this_clone", lambda: None)


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
    answer = json.loads(out)
    assert (status, status, checks) == (found, answer["exit_code"], answer["checks"][: len(checks)])
    more = [(check["part"], check["state"]) for check in answer["checks"][len(checks) :]]
    assert [("clock", "ok"), *((part, "absent") for part in ("events", "roles", "quota", "image"))] == more


def test_each_finding_has_the_command_that_corrects_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Below its line; what the deployment does not have is said, and not passed as good."""
    with served(diagnosis(OK, WRONG, ABSENT), status=200) as url:
        _, out, _ = landfall(capsys, "doctor", "--url", url, "--key", "k")
    assert [
        "ok         queues        queue q: about 0 messages in it",
        "WRONG      queues        queue q: it does not exist",
        "           to fix it:    azd provision",
        "none here  queues        queue q: a key opens it",
    ] == out.splitlines()[:4]
    assert "8 checks: 1 wrong, 0 could not be checked, 5 of things that this deployment does not have" in out


def test_an_app_that_does_not_answer_is_the_finding(capsys: pytest.CaptureFixture[str]) -> None:
    """It has what the app said, and what helps there."""
    refusal = {"code": "misconfigured", "detail": "LANDFALL_WORKSPACE is not set", "errors": []}
    with served(refusal, status=503) as url:
        status, out, _ = landfall(capsys, "doctor", "--url", url, "--key", "k")
    assert (1, "WRONG      function app  " + url + ": LANDFALL_WORKSPACE is not set") == (status, out.splitlines()[0])
    assert "to fix it:    stop the twin" in out
    in_azure = (FunctionApp(status=503, text=""), FunctionApp(status=401, text=""))
    fixes = [check.fix for app in in_azure for check in examine(app.client(), {}, no_workspace)]
    assert ["azd up", "pass the key of the function app with --key, or set LANDFALL_FUNCTION_KEY"] == fixes


def test_a_clock_that_is_wrong_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    """A sign-in with it is refused, without a word about the time."""
    with served(diagnosis(OK) | {"at": "2020-01-01T00:00:00Z"}, status=200) as url:
        status, out, _ = landfall(capsys, "doctor", "--url", url, "--key", "k")
    assert 1 == status
    assert "s ahead of the function app's\n           to fix it:    sudo timedatectl set-ntp true" in out


@pytest.mark.parametrize(
    ("place", "status", "state"), [({"in_azure": True}, 3, "unknown"), ({"in_azure": False}, 0, "absent")]
)
def test_a_package_shows_what_the_app_sees_and_says_what_it_cannot(
    place: dict[str, bool],
    status: int,
    state: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Only a clone has the templates that roles, clusters and the rest are compared with."""
    monkeypatch.setattr("cli.doctor.command.IS_CLONE", False)
    with served(diagnosis(OK) | place, status=200) as url:
        found, out, _ = landfall(capsys, "doctor", "--json", "--url", url, "--key", "k")
    checks = [(check["part"], check["state"]) for check in json.loads(out)["checks"]]
    assert (status, [("queues", "ok"), ("clock", "ok"), ("deployment", state)]) == (found, checks)


def no_workspace(identity: WorkspaceId) -> Clusters:
    """No test of this file opens one."""
    raise AssertionError(identity)


def test_a_deployment_in_azure_is_looked_at_with_az(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the names that the app states, or azd where the app does not answer."""
    asked: list[Deployment] = []
    unknown = Check(part="sign-in", subject="az", state=CheckState.UNKNOWN, says="", fix="az login")

    def looked(place: Deployment, *_: object) -> list[Check]:
        asked.append(place)
        return [unknown]

    monkeypatch.setattr("cli.doctor.azure.azure_checks", looked)
    stated = {
        "subscription_id": "s",
        "resource_group": "g",
        "workspace": "w",
        "environment_id": f"{W}/versions/1",  # an app of an earlier release states no trace
    }
    app = FunctionApp(body=diagnosis(OK) | {"in_azure": True} | stated)
    assert 3 == exit_code(examine(app.client(), {}, no_workspace))
    environ = {
        f"LANDFALL_{name}": value
        for name, value in {
            "SUBSCRIPTION_ID": "s",
            "RESOURCE_GROUP": "g",
            "WORKSPACE": "w",
            "ENVIRONMENT_VERSION": "1",
        }.items()
    }
    dead = FunctionApp(status=503, text="")
    assert 1 == exit_code(examine(dead.client(), environ, no_workspace))
    place = Deployment(subscription="s", resource_group="g", workspace="w", environment_id=f"{W}/versions/1")
    assert [place, place] == asked
    assert ["function app"] == [check.part for check in examine(dead.client(), {}, no_workspace)]
