"""``landfall doctor``."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli import IS_CLONE, ROOT
from cli.doctor import DEFAULT_WAIT_S, MAX_WAIT_S
from cli.errors import CliError
from cli.options import with_api
from cli.remote.api_client import ApiClient, ApiError
from function_app.domain.checks import ONE_ITEM, Check, CheckState

if TYPE_CHECKING:  # an installed package does not have them
    from cli.deploy.workspace import WorkspaceId
    from cli.doctor.azure import Clusters, Deployment

WRONG, NOT_SEEN = 1, 3
"""Exit codes; click ends with 2 where the command line is wrong."""
LABELS = {
    CheckState.OK: "ok",
    CheckState.WRONG: "WRONG",
    CheckState.UNKNOWN: "unknown",
    CheckState.ABSENT: "none here",
}
MAX_SKEW_S = 60
ON_THE_TWIN = {
    "roles": "no role is assigned on this machine",
    "quota": "clusters are simulated on this machine, and have no quota",
    "image": "jobs run in .venv-training, and not in an image",
}
OpenWorkspace = Callable[["WorkspaceId"], "Clusters"]


@click.command(epilog="Example: landfall doctor --json")
@click.option(
    "--telemetry-wait",
    "telemetry_wait_s",
    type=click.IntRange(0, MAX_WAIT_S),
    metavar="SECONDS",
    default=DEFAULT_WAIT_S,
    help=(
        "Maximum time to wait until Application Insights shows the item that the app sent, in seconds; 0 checks once."
    ),
)
@click.option("--json", "as_json", is_flag=True, help="Print all checks and the exit status as one JSON object.")
@with_api
def doctor(client: ApiClient, *, telemetry_wait_s: int, as_json: bool) -> int:
    """Check a deployment, and print the command that fixes each problem.

    The function app checks with its own identity what it depends on: storage, queues, tables, workspace, clock, and
    that telemetry and the notification topic accept what it sends. For a deployment in Azure, `az` then checks event
    subscriptions, roles, clusters, quota and image, and that the telemetry item has arrived. This needs a clone,
    whose templates state the expected values.

    Exit status: 0 nothing is wrong; 1 something is wrong; 2 wrong usage; 3 nothing is wrong, but a check could not be
    made.
    """
    checks = examine(client, os.environ, _open_workspace, telemetry_wait_s=telemetry_wait_s)
    if as_json:
        found = {"checks": [asdict(check) for check in checks], "exit_code": exit_code(checks)}
        click.echo(json.dumps(found, indent=2))
    else:
        click.echo("\n".join(describe(checks)))
    return exit_code(checks)


def examine(
    client: ApiClient,
    environ: Mapping[str, str],
    open_workspace: OpenWorkspace,
    pipelines: Path = ROOT / "pipelines",
    *,
    telemetry_wait_s: float = DEFAULT_WAIT_S,
) -> list[Check]:
    """Return all checks. If the app cannot make its checks, that is a finding, and Azure is checked nevertheless.

    It waits for telemetry only if nothing else is wrong.
    """
    try:
        found = client.get("/api/doctor")
    except CliError as error:
        says, fix = error.message, _fix_of_app(client, error)
        checks = [Check(part="function app", subject=client.url, state=CheckState.WRONG, says=says, fix=fix)]
        deployment = _from_environment(environ) if IS_CLONE else None
        return [*checks, *(_in_azure(deployment, pipelines, open_workspace) if deployment else [])]
    checks = [*(_check(each) for each in found["checks"]), _clock(found["at"])]
    if not IS_CLONE:
        return [*checks, _needs_clone(in_azure=found["in_azure"])]
    if found["in_azure"]:
        from cli.doctor.azure import Deployment

        names = ("resource_group", "workspace", "environment_id")
        deployment = Deployment(subscription=found["subscription_id"], **{name: str(found[name]) for name in names})
        checks += _in_azure(deployment, pipelines, open_workspace)
        return [*checks, *_read_back(deployment, str(found.get("telemetry_trace")), checks, telemetry_wait_s)]
    from cli.doctor.emulator import twin_subscriptions

    return [*checks, *twin_subscriptions(client.url), *_absent()]


def _fix_of_app(client: ApiClient, error: CliError) -> str:
    """Return what helps against an app that does not make its checks."""
    from function_app.explain.doctor import TWIN_FIX

    if isinstance(error, ApiError) and error.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return "pass the key of the function app with --key, or set LANDFALL_FUNCTION_KEY"
    return TWIN_FIX if client.is_local else "azd up"


def _needs_clone(*, in_azure: bool) -> Check:
    """Return what stands for the checks that an installed package cannot make."""
    says = "event subscriptions, roles, clusters, quota, image and logs are compared with the templates of a clone"
    state, fix = (CheckState.UNKNOWN, ".venv/bin/landfall doctor") if in_azure else (CheckState.ABSENT, "")
    return Check(part="deployment", subject="installed package", state=state, says=says, fix=fix)


def _open_workspace(identity: WorkspaceId) -> Clusters:
    from cli.deploy.workspace import AzureMlWorkspace

    return AzureMlWorkspace.open(identity)


def _in_azure(deployment: Deployment, pipelines: Path, open_workspace: OpenWorkspace) -> Iterable[Check]:
    from cli.doctor.azure import azure_checks

    return azure_checks(deployment, pipelines, open_workspace)


def _read_back(deployment: Deployment, trace_id: str, checks: Sequence[Check], wait_s: float) -> Iterator[Check]:
    """Yield a check that the app's telemetry item arrived; nothing if it sent no item or `az` is not signed in."""
    from cli.doctor.telemetry import read_back

    was_sent = any(check.subject == ONE_ITEM and check.state is CheckState.OK for check in checks)
    is_signed_in = any(check.part == "sign-in" and check.state is CheckState.OK for check in checks)
    if not was_sent or not is_signed_in:
        return
    wait_s = 0 if exit_code(checks) == WRONG else wait_s
    if wait_s:
        click.echo(f"waiting up to {wait_s:.0f} s until the logs have the telemetry item that the app sent", err=True)
    yield read_back(deployment, trace_id, wait_s)


def _from_environment(environ: Mapping[str, str]) -> Deployment | None:
    """Return the deployment that azd's variables describe, or None."""
    from cli.deploy.assets import ENVIRONMENT_NAME
    from cli.deploy.workspace import WorkspaceId
    from cli.doctor.azure import Deployment

    names = [f"LANDFALL_{name}" for name in ("SUBSCRIPTION_ID", "RESOURCE_GROUP", "WORKSPACE", "ENVIRONMENT_VERSION")]
    if not all(environ.get(name) for name in names):
        return None
    subscription, group, workspace, version = (environ[name] for name in names)
    identity = WorkspaceId(subscription=subscription, resource_group=group, workspace=workspace)
    return Deployment(
        subscription=subscription,
        resource_group=group,
        workspace=workspace,
        environment_id=identity.asset("environments", ENVIRONMENT_NAME, version),
    )


def _absent() -> Iterator[Check]:
    for part, says in ON_THE_TWIN.items():
        yield Check(part=part, subject="local twin", state=CheckState.ABSENT, says=says)


def _clock(app: str) -> Check:
    """Compare this machine's clock with the app's: Azure refuses sign-ins from a machine whose clock is wrong."""
    skew_s = (datetime.now(UTC) - datetime.fromisoformat(app)).total_seconds()
    right = abs(skew_s) <= MAX_SKEW_S
    return Check(
        part="clock",
        subject="this machine",
        state=CheckState.OK if right else CheckState.WRONG,
        says=f"{abs(skew_s):.0f} s {'ahead of' if skew_s > 0 else 'behind'} the function app's",
        fix="" if right else "sudo timedatectl set-ntp true",
    )


def _check(members: Mapping[str, Any]) -> Check:
    return Check(**{**members, "state": CheckState(members["state"])})


def exit_code(checks: Iterable[Check]) -> int:
    """Return the exit status. A part that a deployment does not have is not wrong."""
    states = {check.state for check in checks}
    if CheckState.WRONG in states:
        return WRONG
    return NOT_SEEN if CheckState.UNKNOWN in states else 0


def describe(checks: Sequence[Check]) -> Iterator[str]:
    """Yield the lines that describe the checks: one for each, followed by the command that fixes it."""
    for check in checks:
        yield f"{LABELS[check.state]:<10} {check.part:<13} {check.subject}: {check.says}"
        if check.fix:
            yield f"{'':<10} to fix it:    {check.fix}"
    counts = {state: sum(check.state is state for check in checks) for state in CheckState}
    yield (
        f"{len(checks)} checks: {counts[CheckState.WRONG]} wrong, {counts[CheckState.UNKNOWN]} could not be checked, "
        f"{counts[CheckState.ABSENT]} of things that this deployment does not have"
    )
