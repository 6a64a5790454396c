"""What the app says of all that it needs."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from function_app.adapters.probes import TELEMETRY, telemetry_probe
from function_app.domain.checks import AbsentHereError, Check, CheckState, Probe
from function_app.domain.errors import NotificationError, ServiceUnavailableError
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


def test_what_is_wrong_on_the_twin_is_corrected_by_starting_it_again() -> None:
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
    """The check has Azure ML's message."""
    world = World()
    world.services = replace(world.services, in_azure=True)
    world.jobs.ours = lambda: look(ServiceUnavailableError("list the jobs: 503"))  # type: ignore[method-assign,assignment,return-value]
    found = {check.part: check for check in examine(world.services).checks}
    assert (CheckState.WRONG, "list the jobs: 503") == (found["workspace"].state, found["workspace"].says)


def found_in(world: World, part: str) -> list[Check]:
    """The checks of one part, as in Azure."""
    world.services = replace(world.services, in_azure=True)
    return [check for check in examine(world.services).checks if check.part == part]


def test_a_cluster_that_is_gone_is_found_with_the_pipelines_that_name_it() -> None:
    """It is found before the first job is refused."""
    world = World()
    assert [CheckState.OK] == [check.state for check in found_in(world, "clusters")]
    world.jobs.deleted_computes.add("landfall-gpu")
    (found,) = found_in(world, "clusters")
    assert (CheckState.WRONG, "landfall-gpu", "azd up") == (found.state, found.subject, found.fix)
    assert "the workspace does not have it; it is used by digits" == found.says


@pytest.mark.parametrize(
    ("problem", "fix"),
    [
        (
            "digits.yaml: notify: LANDFALL_WEBHOOK_PEOPLE must be an https address",
            (
                'az keyvault secret set --vault-name "$(azd env get-value LANDFALL_VAULT)" '
                "--name LANDFALL-WEBHOOK-PEOPLE --value URL && "
                'az functionapp restart --resource-group "$(azd env get-value LANDFALL_RESOURCE_GROUP)" '
                '--name "$(azd env get-value LANDFALL_FUNCTION_APP)"'
            ),
        ),
        (
            "digits.yaml: notify: TEAM_MAIL is not set; set it to an Apprise URL such as mailtos://…",
            (
                "add TEAM_MAIL to the list LANDFALL_WEBHOOKS with `azd env set`, then: azd provision && "
                'az keyvault secret set --vault-name "$(azd env get-value LANDFALL_VAULT)" '
                "--name TEAM-MAIL --value URL && "
                'az functionapp restart --resource-group "$(azd env get-value LANDFALL_RESOURCE_GROUP)" '
                '--name "$(azd env get-value LANDFALL_FUNCTION_APP)"'
            ),
        ),
        ("digits.yaml: train: is required", "correct the file until `landfall check` finds nothing, then: azd up"),
        ("digits.yaml: LANDFALL_CODE_ID: the function app supports version 1", "azd up"),
    ],
)
def test_a_pipeline_out_of_service_is_found(problem: str, fix: str) -> None:
    """The fix matches the problem."""
    world = World()
    world.services = replace(world.services, out_of_service={"digits": (problem,)}, pipelines={})
    assert [(problem, fix)] == [(check.says, check.fix) for check in found_in(world, "pipelines")]


def test_notifications_that_fail_are_found() -> None:
    """The check names the recipient and its answer."""
    world = World()
    assert [CheckState.OK] == [check.state for check in found_in(world, "notifications")]
    world.people.send = lambda _notification: look(NotificationError("people answered 401"))  # type: ignore[method-assign,assignment]
    world.finish(world.upload_version())
    (found,) = found_in(world, "notifications")
    said = "1 could not be sent to webhook:LANDFALL_WEBHOOK_PEOPLE, the last one because: people answered 401"
    assert (CheckState.WRONG, said) == (found.state, found.says)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, f"{TELEMETRY[0]} and {TELEMETRY[1]} must be set"),
        ({TELEMETRY[0]: "x"}, f"{TELEMETRY[1]} must be set, or all telemetry is lost"),
        ({TELEMETRY[0]: "x", TELEMETRY[1]: "ClientId=c"}, "must be ClientId=…;Authorization=AAD"),
    ],
)
def test_telemetry_that_would_be_lost_is_found(settings: dict[str, str], said: str) -> None:
    """The exporter says nothing: with keys off, it is refused."""
    with pytest.raises(LandfallError, match=said):
        telemetry_probe(settings, in_azure=True).look()
    with pytest.raises(AbsentHereError):
        telemetry_probe(settings, in_azure=False).look()
    whole = {TELEMETRY[0]: "x", TELEMETRY[1]: "ClientId=c;Authorization=AAD"}
    assert telemetry_probe(whole, in_azure=True).look().startswith("where telemetry goes is set")
