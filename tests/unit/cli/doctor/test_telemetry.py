"""Whether the telemetry item that the app sent is read back from the logs, as `az` answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cli.doctor.azure import Deployment
from cli.doctor.command import examine
from cli.doctor.telemetry import API, POLL_S, read_back
from function_app.domain.checks import ONE_ITEM, Check, CheckState
from tests.support.azure_programs import AzurePrograms
from tests.unit.cli.fake_function_app import FunctionApp

TRACE = "7" * 32
DEPLOYMENT = Deployment(subscription="s", resource_group="g", workspace="w", environment_id="e")
LOGS = f"{DEPLOYMENT.group_id}/providers/Microsoft.OperationalInsights/workspaces"
WORKSPACE = {"name": "log-x", "id": f"{LOGS}/log-x", "properties": {"customerId": "c0ffee"}}
GRANT = (
    f'az role assignment create --role "Log Analytics Reader" --scope {LOGS}/log-x '
    '--assignee "$(az ad signed-in-user show --query id --output tsv)"'
)
TIME = "2026-11-23T12:00:00Z"


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self, slept: Callable[[], None] = lambda: None) -> None:
        self.now_s, self.slept = 0.0, slept

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Move."""
        self.now_s += seconds
        self.slept()


def answers(*rows: list[str], workspaces: Any = None) -> dict[str, Any]:
    """What Azure answers: its logs as the query API documents them."""
    columns = [{"name": "TimeGenerated", "type": "datetime"}]
    return {
        f"*{LOGS}?": {"value": [WORKSPACE] if workspaces is None else workspaces},
        "az rest --method post": {"tables": [{"name": "PrimaryResult", "columns": columns, "rows": list(rows)}]},
    }


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AzurePrograms:
    installed = AzurePrograms(tmp_path)
    installed.answer(answers=answers())
    monkeypatch.setenv("PATH", installed.path)
    return installed


def looked(wait_s: float, clock: Clock | None = None) -> Check:
    clock = clock or Clock()
    return read_back(DEPLOYMENT, TRACE, wait_s, clock=clock, sleep=clock.sleep)


def test_an_item_that_arrives_while_it_is_waited_for_is_found(programs: AzurePrograms) -> None:
    """The query names the trace, and goes to the workspace by its own id."""
    clock = Clock(lambda: programs.answer(answers=answers([TIME])))
    found = looked(300, clock)
    assert (CheckState.OK, f"the item that the app sent is in the logs, seen after {POLL_S:.0f} s", "") == (
        found.state,
        found.says,
        found.fix,
    )
    query = programs.calls[1]
    assert [
        "az",
        "rest",
        "--method",
        "post",
        "--url",
        f"{API}/v1/workspaces/c0ffee/query",
        "--resource",
        API,
    ] == query[:8]
    assert f'AppDependencies | where OperationId == "{TRACE}"' in json.loads(query[9])["query"]
    assert 3 == len(programs.calls)


@pytest.mark.parametrize(("wait_s", "longer_s", "asked"), [(0, 300, 1), (300, 900, 21), (3600, 3600, 241)])
def test_an_item_that_does_not_arrive_in_time_is_unknown(
    wait_s: int, longer_s: int, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may still come, so it is not wrong; the command that waits longer is named."""
    calls: list[object] = []

    def az(*call: str, fix: str) -> dict[str, Any]:
        calls.append((call, fix))
        return {"tables": [{"rows": []}]}

    monkeypatch.setattr("cli.doctor.telemetry.az", az)
    monkeypatch.setattr("cli.doctor.telemetry.listed", lambda *_: [WORKSPACE])
    found = looked(wait_s)
    assert (CheckState.UNKNOWN, f"landfall doctor --telemetry-wait {longer_s}") == (found.state, found.fix)
    assert f"not in the logs after {wait_s} s; it may take some minutes" in found.says
    assert asked == len(calls)


def test_a_query_that_is_refused_names_the_role_to_grant(programs: AzurePrograms) -> None:
    """A workspace that cannot be listed leads to another fix."""
    programs.answer(fails_at=2)
    refused = looked(300)
    assert (CheckState.UNKNOWN, GRANT) == (refused.state, refused.fix)
    assert "the logs cannot be read: `az rest --method post` ended with exit code 1" in refused.says
    programs.forget()
    programs.answer(fails_at=1)
    unlisted = looked(300)
    assert (CheckState.UNKNOWN, "landfall doctor") == (unlisted.state, unlisted.fix)


@pytest.mark.parametrize("tables", [None, [], [{}], "x"])
def test_an_answer_of_another_shape_is_unknown(tables: Any, programs: AzurePrograms) -> None:
    """No stack trace."""
    programs.answer(answers=answers() | {"az rest --method post": {"tables": tables}})
    found = looked(300)
    assert CheckState.UNKNOWN == found.state
    assert "printed unexpected output" in found.says


@pytest.mark.parametrize("trace", ["", "None", '" | union *', TRACE + "0", TRACE.upper().replace("7", "F")])
def test_what_is_no_trace_gets_into_no_query(trace: str, programs: AzurePrograms) -> None:
    """An app of another release, or another program at this URL, may send such a value."""
    found = read_back(DEPLOYMENT, trace, 0)
    assert (CheckState.UNKNOWN, "azd deploy", []) == (found.state, found.fix, programs.calls)


def test_a_deployment_without_logs_is_wrong(programs: AzurePrograms) -> None:
    """Another workspace of the group is not ours."""
    programs.answer(answers=answers(workspaces=[WORKSPACE | {"name": "other"}]))
    found = looked(300)
    assert (CheckState.WRONG, "azd provision") == (found.state, found.fix)


OK, WRONG, UNKNOWN = CheckState.OK, CheckState.WRONG, CheckState.UNKNOWN


@pytest.mark.parametrize(
    ("sent", "signed_in", "other", "waited"),
    [(OK, OK, OK, [120]), (OK, OK, WRONG, [0]), (WRONG, OK, OK, []), (OK, UNKNOWN, OK, [])],
)
def test_an_item_is_waited_for_where_it_was_sent_and_nothing_else_is_wrong(
    sent: CheckState,
    signed_in: CheckState,
    other: CheckState,
    waited: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A deployment that is still being corrected is not kept waiting."""

    def check(part: str, subject: str, state: CheckState) -> dict[str, str]:
        return {
            "part": part,
            "subject": subject,
            "state": state,
            "says": "",
            "fix": "" if state is OK else "correct it",
        }

    stated = dict.fromkeys(("subscription_id", "resource_group", "workspace", "environment_id"), "x")
    body = {"at": datetime.now(UTC).isoformat(), "in_azure": True, "telemetry_trace": TRACE, **stated}
    app = FunctionApp(body=body | {"checks": [check("telemetry", ONE_ITEM, sent), check("queues", "q", other)]})
    asked: list[float] = []

    def read(_deployment: Deployment, trace: str, wait_s: float) -> Check:
        assert TRACE == trace
        asked.append(wait_s)
        return Check(part="telemetry", subject="read back", state=OK, says="")

    monkeypatch.setattr("cli.doctor.telemetry.read_back", read)
    monkeypatch.setattr(
        "cli.doctor.azure.azure_checks",
        lambda *_: [Check(part="sign-in", subject="az", state=signed_in, says="", fix="")],
    )
    examine(app.client(), {}, lambda _identity: pytest.fail("opened"), telemetry_wait_s=120)
    assert waited == asked
