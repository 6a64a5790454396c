"""``landfall doctor``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import click

from cli.api_client import ApiClient, ApiError
from cli.errors import CliError
from cli.options import as_json_option, with_api
from function_app.domain.checks import Check, CheckState

WRONG, NOT_SEEN = 1, 3
"""Exit codes; click ends with 2 where the command line is wrong."""
LABELS = {
    CheckState.OK: "ok",
    CheckState.WRONG: "WRONG",
    CheckState.UNKNOWN: "unknown",
    CheckState.ABSENT: "none here",
}


@click.command(epilog="Example: landfall doctor --json")
@as_json_option
@with_api
def doctor(client: ApiClient, *, as_json: bool) -> int:
    """Check that a deployment has all that it needs, and print the command that mends what is wrong.

    The function app looks at storage, queues, tables and workspace with its own identity. Exit code 0: nothing is
    wrong; 1: something is wrong; 3: nothing is wrong, but something could not be looked at.
    """
    checks = app_checks(client)
    if as_json:
        click.echo(
            json.dumps({"checks": [asdict(check) for check in checks], "exit_code": exit_code(checks)}, indent=2)
        )
    else:
        click.echo("\n".join(describe(checks)))
    return exit_code(checks)


def app_checks(client: ApiClient) -> list[Check]:
    """Return what the app found; an app that cannot look is itself what is wrong."""
    try:
        found = client.get("/api/doctor")
    except ApiError as error:
        return [_app_is_wrong(client.url, error.message, "landfall hook postdeploy")]
    except CliError as error:
        return [_app_is_wrong(client.url, error.message, "landfall hook postdeploy")]
    return [_check(each) for each in found["checks"]]


def _app_is_wrong(url: str, says: str, fix: str) -> Check:
    return Check(part="function app", subject=url, state=CheckState.WRONG, says=says, fix=fix)


def _check(members: dict[str, Any]) -> Check:
    return Check(**{**members, "state": CheckState(members["state"])})


def exit_code(checks: Iterable[Check]) -> int:
    """Return 0 where nothing is wrong; what a deployment does not have is not wrong."""
    states = {check.state for check in checks}
    if CheckState.WRONG in states:
        return WRONG
    return NOT_SEEN if CheckState.UNKNOWN in states else 0


def describe(checks: Sequence[Check]) -> Iterator[str]:
    """Yield the lines that describe the checks: one for each, and below it the command that mends it."""
    for check in checks:
        yield f"{LABELS[check.state]:<10} {check.part:<12} {check.subject}: {check.says}"
        if check.fix:
            yield f"{'':<10} to mend it:  {check.fix}"
    counts = {state: sum(check.state is state for check in checks) for state in CheckState}
    yield (
        f"{len(checks)} checks: {counts[CheckState.WRONG]} wrong, {counts[CheckState.UNKNOWN]} could not be looked "
        f"at, {counts[CheckState.ABSENT]} of things that this deployment does not have"
    )
