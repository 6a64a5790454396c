"""What the app says of all that it needs."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from function_app.domain.checks import AbsentHereError, Check, CheckState, Probe
from function_app.domain.errors import ServiceUnavailableError
from function_app.explain.doctor import TWIN_FIX, examine
from function_app.services import Services
from shared.errors import LandfallError
from tests.support.world import World


def services(*probes: Probe, in_azure: bool = True) -> Services:
    return replace(World().services, probes=probes, in_azure=in_azure)


def look(error: Exception) -> str:
    raise error


@pytest.mark.parametrize(
    ("error", "state", "says"),
    [
        (LandfallError("no\nqueue"), CheckState.WRONG, "no queue"),
        (AbsentHereError("a key opens it"), CheckState.ABSENT, "a key opens it"),
        (ValueError("x"), CheckState.WRONG, "an unexpected error: ValueError('x')"),
        (LandfallError("AccountKey=c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0;"), CheckState.WRONG, "AccountKey=…;"),
    ],
)
def test_an_error_becomes_a_finding_with_its_command(error: Exception, state: CheckState, says: str) -> None:
    """One line without secrets; what a deployment does not have needs no command."""
    probe = Probe(part="queues", subject="queue q", look=lambda: look(error), fix="azd provision")
    found = examine(services(probe)).checks[0]
    fix = "azd provision" if state is CheckState.WRONG else ""
    assert Check(part="queues", subject="queue q", state=state, says=says, fix=fix) == found


def test_what_is_wrong_on_the_twin_is_mended_by_starting_it_again() -> None:
    """It has no deployment that azd could repeat."""
    probe = Probe(part="queues", subject="queue q", look=lambda: look(LandfallError("gone")))
    assert TWIN_FIX == examine(services(probe, in_azure=False)).checks[0].fix


def test_a_check_that_hangs_is_unknown_and_holds_up_no_other() -> None:
    """The answer has a time limit, and the others are in it."""
    end = threading.Event()
    hanging = Probe(part="storage", subject="slow", look=lambda: str(end.wait(600)))
    quick = Probe(part="queues", subject="quick", look=lambda: "there")
    found = examine(services(hanging, quick), within_s=0.2).checks
    end.set()
    assert [CheckState.UNKNOWN, CheckState.OK] == [check.state for check in found[:2]]


def test_a_workspace_that_does_not_answer_is_found() -> None:
    """With what Azure ML said."""
    world = World()
    world.services = replace(world.services, in_azure=True)
    world.jobs.ours = lambda: look(ServiceUnavailableError("list the jobs: 503"))  # type: ignore[method-assign,assignment,return-value]
    found = {check.part: check for check in examine(world.services).checks}
    assert (CheckState.WRONG, "list the jobs: 503") == (found["workspace"].state, found["workspace"].says)
