"""Check that telemetry arrives: read the item that the app sent for `landfall doctor` from the logs."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable

from cli.deploy.programs import az, reading
from cli.doctor import DEFAULT_WAIT_S, MAX_WAIT_S
from cli.doctor.azure import Deployment, listed, shown_on_one_line
from cli.errors import CliError
from function_app.domain.checks import Check, CheckState

TRACE_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)
LOGS_VERSION = "2025-02-01"
API = "https://api.loganalytics.io"
"""Log queries of Azure's public cloud; the documented call is `az rest` with `--resource` and this address."""
POLL_S = 15.0
GRANT = (
    'az role assignment create --role "Log Analytics Reader" --scope {scope} '
    '--assignee "$(az ad signed-in-user show --query id --output tsv)"'
)


def read_back(
    deployment: Deployment,
    trace_id: str,
    wait_s: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Check:
    """Return a check that the logs have an item of this trace; query them for at most ``wait_s``."""
    began_s, fix = clock(), "landfall doctor"
    if not TRACE_ID.fullmatch(trace_id):  # it becomes part of a query
        return _check(CheckState.UNKNOWN, "the app did not name the trace of the item that it sent", "azd deploy")
    try:
        workspace, scope = _logs(deployment)
        if not workspace:
            return _check(CheckState.WRONG, "the resource group has no Log Analytics workspace", "azd provision")
        fix = GRANT.format(scope=scope)
        while not _is_there(workspace, trace_id):
            if clock() - began_s >= wait_s:
                return _not_yet(wait_s)
            sleep(POLL_S)
    except CliError as error:
        return _check(CheckState.UNKNOWN, f"the logs cannot be read: {error.message}", fix)
    return _check(
        CheckState.OK, f"the item that the app sent is in the logs, seen after {clock() - began_s:.0f} s", ""
    )


def _not_yet(wait_s: float) -> Check:
    says = (
        f"the item that the app sent is not in the logs after {wait_s:.0f} s; it may take some minutes, or until "
        f"tomorrow if the daily limit is reached (query logs-capped)"
    )
    longer_s = min(max(wait_s * 3, DEFAULT_WAIT_S), MAX_WAIT_S)
    return _check(CheckState.UNKNOWN, says, f"landfall doctor --telemetry-wait {longer_s:.0f}")


def _check(state: CheckState, says: str, fix: str) -> Check:
    return Check(part="telemetry", subject="read back", state=state, says=shown_on_one_line(says), fix=fix)


def _logs(deployment: Deployment) -> tuple[str, str]:
    """Return the id by which the workspace is queried and its ARM id; nothing if there is none."""
    found = listed(f"{deployment.group_id}/providers/Microsoft.OperationalInsights/workspaces", LOGS_VERSION)
    with reading("az rest"):
        own = [one for one in found if str(one["name"]).startswith("log-")]
        return (str(own[0]["properties"]["customerId"]), str(own[0]["id"])) if own else ("", "")


def _is_there(workspace: str, trace_id: str) -> bool:
    query = f'AppDependencies | where OperationId == "{trace_id}" | project TimeGenerated'
    body = json.dumps({"query": query, "timespan": "PT4H"})
    url = f"{API}/v1/workspaces/{workspace}/query"
    asked = ("rest", "--method", "post", "--url", url, "--resource", API, "--body", body)
    found = az(*asked, fix="you need the role Log Analytics Reader on the workspace, or Reader on its resource group")
    with reading("az rest"):
        return bool(found["tables"][0]["rows"])
