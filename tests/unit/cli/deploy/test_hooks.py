"""The hooks of `azd up`: which calls they make, in which order, twice, and with each call failing once."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cli.deploy.after import await_health, examine_deployment, publish_assets, smoke_test
from cli.deploy.before import PROVIDERS, image_version, prepare
from cli.deploy.programs import AzdEnvironment
from cli.errors import CliError
from function_app.domain.checks import Check, CheckState
from tests.support.azure_programs import AzurePrograms
from tests.support.memory_workspace import MemoryWorkspace
from tests.support.processes import REPOSITORY
from tools.bicep_files import read_files

BASE = f"mcr.microsoft.com/azureml/openmpi5.0-cuda12.5-ubuntu22.04@sha256:{'a' * 64}"
DIGEST = f"sha256:{'b' * 64}"
SUBSCRIPTION = "11111111-2222-3333-4444-555555555555"
A100 = {"name": "Standard_NC24ads_A100_v4", "family": "standardNCADSA100v4Family", "vCPUs": 24}
ND = {"name": "Standard_ND96asr_v4", "family": "standardNDASv4Family", "vCPUs": 96}
SIZES = {"landfall-gpu": "Standard_NC24ads_A100_v4", "landfall-gpu-rdma": "Standard_ND96asr_v4"}
"""What the template created."""
FIRST = {
    "AZURE_ENV_NAME": "test",
    "AZURE_SUBSCRIPTION_ID": SUBSCRIPTION,
    "AZURE_LOCATION": "westeurope",
    "LANDFALL_BASE_IMAGE": BASE,
}
OUTPUTS = {
    "LANDFALL_SUBSCRIPTION_ID": SUBSCRIPTION,
    "LANDFALL_RESOURCE_GROUP": "rg-test",
    "LANDFALL_WORKSPACE": "mlw-x",
    "LANDFALL_REGISTRY": "lfacrx",
    "LANDFALL_REGISTRY_SERVER": "lfacrx.azurecr.io",
    "LANDFALL_DATA_ACCOUNT": "lfdatax",
    "LANDFALL_HOST_ACCOUNT": "lfhostx",
    "LANDFALL_CLUSTER_IDENTITY": "/subscriptions/s/resourceGroups/g"
    "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/i",
}


def usage(family: str, limit: int) -> dict[str, Any]:
    """A quota as Azure ML lists it."""
    return {"name": {"value": f"{family} Cluster Dedicated vCPUs"}, "limit": limit}


def subscription(**changed: Any) -> dict[str, Any]:
    """What a subscription answers that has everything."""
    return {
        "az version": {"azure-cli": "2.80.0"},
        "az account show": {"id": SUBSCRIPTION},
        "az provider list": [{"namespace": name, "registrationState": "Registered"} for name in PROVIDERS],
        "az provider register": None,
        "az functionapp list-flexconsumption-locations": [{"name": "eastus"}, {"name": "West Europe"}],
        "*westeurope/vmSizes": {"value": [A100, ND]},
        "*westeurope/usages": {
            "value": [usage("Standard NCADSA100v4 Family", 96), usage("Standard NDASv4 Family", 384)]
        },
    } | changed


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AzurePrograms:
    stubs = AzurePrograms(tmp_path)
    stubs.answer(answers=subscription())
    stubs.environment = FIRST
    monkeypatch.setenv("PATH", stubs.path)
    return stubs


@pytest.fixture
def pipelines(tmp_path: Path) -> Path:
    """Two pipelines on two clusters, and sizes of which the first is retired."""
    folder = tmp_path / "pipelines"
    folder.mkdir()
    for name in ("clusters.yaml", "digits.yaml", "imagenet-resnet50.yaml"):
        (folder / name).write_text((REPOSITORY / "pipelines" / name).read_text())
    return folder


def before(programs: AzurePrograms, pipelines: Path) -> None:
    prepare(REPOSITORY, pipelines, AzdEnvironment(values=programs.environment))


def after(programs: AzurePrograms, pipelines: Path, workspace: MemoryWorkspace) -> None:
    publish_assets(REPOSITORY, pipelines, AzdEnvironment(values=programs.environment), lambda _identity: workspace)


def words(calls: list[list[str]], count: int = 3) -> list[str]:
    return [" ".join(call[:count]) for call in calls]


ASSERTIONS = [
    "az version --output",
    "az account show",
    "az provider list",
    "az functionapp list-flexconsumption-locations",
]
REGION = ["az rest --method", "az rest --method"]


def test_the_first_deployment_is_checked_before_its_versions_are_set(
    programs: AzurePrograms, pipelines: Path
) -> None:
    """Checks come first, and nothing is set before all of them have passed."""
    before(programs, pipelines)
    names = [
        "LANDFALL_CLUSTER_SIZES",
        "LANDFALL_CODE_VERSION",
        "LANDFALL_ENVIRONMENT_VERSION",
        "LANDFALL_BUDGET_START",
    ]
    assert [*ASSERTIONS, *REGION, *["azd env set"] * 4] == words(programs.calls)
    assert names == [call[3] for call in programs.calls if call[0] == "azd"]
    found = programs.environment
    assert found["LANDFALL_CLUSTER_SIZES"] == (
        "landfall-gpu=Standard_NC24ads_A100_v4,landfall-gpu-rdma=Standard_ND96asr_v4"
    )


def test_a_budget_begins_in_the_month_of_its_first_deployment(programs: AzurePrograms, pipelines: Path) -> None:
    """Azure refuses a new budget that begins in a past month, and a changed begin of an old one."""
    programs.environment = FIRST
    before(programs, pipelines)
    assert programs.environment["LANDFALL_BUDGET_START"] == "none"
    programs.environment |= {"LANDFALL_ALERT_EMAILS": '["a@b.example"]'}
    before(programs, pipelines)
    assert programs.environment["LANDFALL_BUDGET_START"] == datetime.now(UTC).strftime("%Y-%m-01")
    programs.environment |= {"LANDFALL_BUDGET_START": "2026-01-01"}
    before(programs, pipelines)
    assert programs.environment["LANDFALL_BUDGET_START"] == "2026-01-01"


def test_a_second_deployment_changes_nothing(programs: AzurePrograms, pipelines: Path) -> None:
    """A cluster keeps its size for good, so neither sizes nor quotas are asked for again."""
    before(programs, pipelines)
    found = programs.environment
    programs.forget()
    before(programs, pipelines)
    assert (ASSERTIONS, found) == (words(programs.calls), programs.environment)


def test_a_cluster_keeps_a_size_that_is_no_longer_the_first(programs: AzurePrograms, pipelines: Path) -> None:
    """Only a new cluster gets a size; NCv3's retirement makes an old choice invalid."""
    kept = "landfall-gpu=Standard_NC40ads_H100_v5,landfall-gpu-rdma=Standard_NC24rs_v3"
    programs.environment = FIRST | {"LANDFALL_CLUSTER_SIZES": kept}
    before(programs, pipelines)
    assert programs.environment["LANDFALL_CLUSTER_SIZES"] == (
        "landfall-gpu=Standard_NC40ads_H100_v5,landfall-gpu-rdma=Standard_ND96asr_v4"
    )


def test_every_call_before_the_deployment_may_fail_once(programs: AzurePrograms, pipelines: Path) -> None:
    """The error names the call and what to do; running it again ends as if nothing had happened."""
    before(programs, pipelines)
    wanted, total = programs.environment, len(programs.calls)
    for number in range(1, total + 1):
        programs.environment = FIRST
        programs.answer(fails_at=number)
        programs.forget()
        with pytest.raises(
            CliError, match=rf"`azd? .*` ended with exit code 1; .+\nERROR: \(Refused\) call {number}"
        ):
            before(programs, pipelines)
        assert number == len(programs.calls)
        programs.answer(fails_at=0)
        before(programs, pipelines)
        assert wanted == programs.environment


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"az version": {"azure-cli": "2.53.1"}}, "az is version 2.53.1; at least 2.60 is needed: az upgrade"),
        (
            {"az functionapp list-flexconsumption-locations": [{"name": "eastus"}]},
            "AZURE_LOCATION REGION` with one of eastus",
        ),
        (
            {"*westeurope/usages": {"value": [usage("Standard NCADSA100v4 Family", 0)]}},
            "at https://ml.azure.com/quota",
        ),
        ({"*westeurope/vmSizes": {"value": []}}, "Standard_NC24ads_A100_v4 is not offered in westeurope"),
    ],
)
def test_what_cannot_work_is_said_before_it_costs_anything(
    changed: dict[str, Any], said: str, programs: AzurePrograms, pipelines: Path
) -> None:
    """Nothing is set, so nothing can be deployed."""
    programs.answer(answers=subscription(**changed))
    with pytest.raises(CliError) as refused:
        before(programs, pipelines)
    assert said in refused.value.message
    assert programs.environment == FIRST


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("az version", "2.80.0"),
        ("az provider list", "all"),
        ("az functionapp list-flexconsumption-locations", ["westeurope"]),
        ("*westeurope/vmSizes", [A100]),
        ("*westeurope/usages", {"value": [{"name": None}]}),
    ],
)
def test_an_answer_of_another_shape_is_an_error_with_its_command(
    command: str, answer: Any, programs: AzurePrograms, pipelines: Path
) -> None:
    """No stack trace, and nothing is set."""
    programs.answer(answers=subscription(**{command: answer}))
    with pytest.raises(CliError, match=r"^`az .*` printed unexpected output .*: az upgrade$"):
        before(programs, pipelines)
    assert programs.environment == FIRST


def test_the_request_for_quota_can_be_copied(programs: AzurePrograms, pipelines: Path) -> None:
    """It names region, family, vCPUs and nodes; a quota starts at 0."""
    limits = {"value": [usage("Standard NCADSA100v4 Family", 96), usage("Standard NDASv4 Family", 0)]}
    programs.answer(answers=subscription(**{"*westeurope/usages": limits}))
    with pytest.raises(CliError) as refused:
        before(programs, pipelines)
    request = "384 dedicated standardNDASv4Family vCPUs in westeurope, for 4 nodes of Standard_ND96asr_v4"
    assert request in refused.value.message


def test_a_provider_that_was_never_used_is_registered(programs: AzurePrograms, pipelines: Path) -> None:
    """Others are left alone."""
    known = [{"namespace": name.lower(), "registrationState": "Registered"} for name in PROVIDERS[1:]]
    known.append({"namespace": PROVIDERS[0], "registrationState": "NotRegistered"})
    programs.answer(answers=subscription(**{"az provider list": known}))
    before(programs, pipelines)
    [call] = [call for call in programs.calls if call[:3] == ["az", "provider", "register"]]
    assert ["--namespace", "Microsoft.App", "--subscription", SUBSCRIPTION, "--wait"] == call[3:8]


def test_every_provider_of_the_templates_is_registered() -> None:
    """Resources and Authorization are everybody's; Consumption needs no registration."""
    files = read_files(REPOSITORY / "infra").values()
    used = {one.type.partition("/")[0] for file in files for one in file.resources()}
    always = {"Microsoft.Authorization", "Microsoft.Consumption", "Microsoft.Resources"}
    assert used - always == set(PROVIDERS) - {"Microsoft.App"}


@pytest.mark.parametrize("name", ["AZURE_SUBSCRIPTION_ID", "AZURE_LOCATION", "LANDFALL_BASE_IMAGE"])
def test_a_missing_value_names_the_command_that_sets_it(name: str, programs: AzurePrograms, pipelines: Path) -> None:
    """No other program is called before."""
    programs.environment = {key: value for key, value in FIRST.items() if key != name}
    with pytest.raises(CliError, match=f"{name} .*azd env set"):
        before(programs, pipelines)
    assert [] == programs.calls


def test_a_base_image_by_its_tag_is_refused(programs: AzurePrograms, pipelines: Path) -> None:
    """Its content would change under the version."""
    programs.environment = FIRST | {"LANDFALL_BASE_IMAGE": BASE.partition("@")[0] + ":latest"}
    with pytest.raises(CliError, match="by digest"):
        before(programs, pipelines)


def test_a_machine_without_az_says_how_to_get_it(pipelines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No stack trace."""
    monkeypatch.setenv("PATH", "")
    with pytest.raises(CliError, match="az is not on PATH: install the Azure CLI"):
        prepare(REPOSITORY, pipelines, AzdEnvironment(values=FIRST))


@pytest.fixture
def provisioned(programs: AzurePrograms, pipelines: Path) -> AzurePrograms:
    """The state after `azd provision`: the registry is empty."""
    before(programs, pipelines)
    programs.environment |= OUTPUTS
    version = image_version(REPOSITORY, BASE)
    built = {
        "az acr repository list": ["landfall-training"],
        "az acr repository show-tags": [version],
        "az acr repository show --name": {"digest": DIGEST},
    }
    programs.answer(answers=subscription(**{"az acr repository list": []}), after_build=built)
    programs.forget()
    return programs


BUILT = ["az acr repository list", "az acr build --registry", "az acr repository show"]
FOUND = ["az acr repository list", "az acr repository show-tags", "az acr repository show"]


def test_the_image_is_built_once_and_published_by_its_digest(provisioned: AzurePrograms, pipelines: Path) -> None:
    """The second run finds it, and changes nothing in the workspace."""
    workspace = MemoryWorkspace(SIZES)
    after(provisioned, pipelines, workspace)
    version = image_version(REPOSITORY, BASE)
    assert BUILT == words(provisioned.calls, 4)
    build = provisioned.calls[1]
    assert [f"landfall-training:{version}", f"BASE_IMAGE={BASE}"] == [build[6], build[8]]
    assert {("landfall-training", version): f"lfacrx.azurecr.io/landfall-training@{DIGEST}"} == workspace.environments
    published = (workspace.codes, workspace.datastores, workspace.clusters)
    provisioned.forget()
    after(provisioned, pipelines, workspace)
    assert FOUND == words(provisioned.calls, 4)
    assert published == (workspace.codes, workspace.datastores, workspace.clusters)


def test_every_call_after_the_deployment_may_fail_once(provisioned: AzurePrograms, pipelines: Path) -> None:
    """The next run completes what is missing."""
    for number in range(1, len(BUILT) + 1):
        provisioned.answer(answers=subscription(**{"az acr repository list": []}), fails_at=number)
        provisioned.forget()
        workspace = MemoryWorkspace(SIZES)
        with pytest.raises(CliError, match=r"ended with exit code 1; "):
            after(provisioned, pipelines, workspace)
        assert {} == workspace.environments
        provisioned.answer(fails_at=0)
        after(provisioned, pipelines, workspace)
        assert 1 == len(workspace.environments)


@pytest.mark.parametrize("name", ["LANDFALL_CODE_VERSION", "LANDFALL_ENVIRONMENT_VERSION", "LANDFALL_CLUSTER_SIZES"])
def test_files_that_changed_since_the_deployment_are_noticed(
    name: str, provisioned: AzurePrograms, pipelines: Path
) -> None:
    """The app's settings would name another version than the one that was published."""
    provisioned.environment |= {name: "0123456789abcdef"}
    with pytest.raises(CliError, match="changed since the templates were deployed: run `azd up` again"):
        after(provisioned, pipelines, MemoryWorkspace(SIZES))


def test_an_image_that_was_pushed_again_under_its_version_is_refused(
    provisioned: AzurePrograms, pipelines: Path
) -> None:
    """The workspace has the version with the first image, and runs would go on with that."""
    workspace = MemoryWorkspace(SIZES)
    after(provisioned, pipelines, workspace)
    pushed = provisioned.plan["after_build"] | {"az acr repository show --name": {"digest": f"sha256:{'c' * 64}"}}
    provisioned.answer(answers=pushed)
    with pytest.raises(CliError, match="has another image"):
        after(provisioned, pipelines, workspace)


@pytest.mark.parametrize("name", sorted(OUTPUTS))
def test_a_missing_output_is_named(name: str, provisioned: AzurePrograms, pipelines: Path) -> None:
    """All of them are outputs of the template."""
    provisioned.environment = {key: value for key, value in provisioned.environment.items() if key != name}
    with pytest.raises(CliError, match=f"{name} is not set in azd's environment: run `azd provision`"):
        after(provisioned, pipelines, MemoryWorkspace(SIZES))
    assert name in read_files(REPOSITORY / "infra")["main.bicep"].of("output")


class _App(http.server.BaseHTTPRequestHandler):
    """Answers as a function app that starts: one error, then its health."""

    answers: list[tuple[int, bytes]]

    def do_GET(self) -> None:
        assert self.path == "/api/health"
        status, body = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: Any) -> None:
        """Write nothing."""


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[type[_App], str]]:
    monkeypatch.setattr("cli.deploy.after.HEALTH_POLL_S", 0.01)
    handler = type("App", (_App,), {"answers": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield handler, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_app_is_awaited(app: tuple[type[_App], str], capsys: pytest.CaptureFixture[str]) -> None:
    """An app that has just been deployed answers 503 for a while."""
    handler, url = app
    handler.answers = [(503, b""), (502, b"x"), (200, b'{"status": "degraded"}')]
    await_health(AzdEnvironment(values={"LANDFALL_URL": url}))
    assert "degraded" in capsys.readouterr().err


def test_an_app_that_stays_ill_is_reported(app: tuple[type[_App], str]) -> None:
    """The report has its last answer and the place to look."""
    handler, url = app
    handler.answers = [(503, b"")]
    with pytest.raises(CliError, match=r"is not healthy after 0 s: HTTP 503\. The app's log has the reason"):
        await_health(AzdEnvironment(values={"LANDFALL_URL": url}), within_s=0)


SMOKE = {
    "LANDFALL_RESOURCE_GROUP": "rg-test",
    "LANDFALL_FUNCTION_APP": "func-x",
    "LANDFALL_DATA_ACCOUNT": "lfdatax",
    "LANDFALL_URL": "https://func-x.azurewebsites.net",
}


@pytest.fixture
def smoke_tests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, str]]:
    """The smoke tests that a hook made: function app and account. The first of them fails."""
    made: list[tuple[str, str]] = []

    def run(client: Any, account: str, _container: str, _folder: Path) -> int:
        made.append((client.url, account))
        return int(len(made) == 1)

    monkeypatch.setattr("cli.deploy.after.run_smoke", run)
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "smoke.yaml").write_text("")
    return made


def test_a_deployment_ends_with_a_smoke_test_that_can_be_repeated(
    programs: AzurePrograms, smoke_tests: list[tuple[str, str]], tmp_path: Path
) -> None:
    """The hook uses the app's key and the data account; if the smoke test fails, it says what to do."""
    programs.answer(answers={"az functionapp keys list": {"functionKeys": {"default": "k"}}})
    with pytest.raises(CliError, match="azd hooks run postdeploy"):
        smoke_test(tmp_path, AzdEnvironment(values=SMOKE))
    smoke_test(tmp_path, AzdEnvironment(values=SMOKE))
    assert [(SMOKE["LANDFALL_URL"], "https://lfdatax.blob.core.windows.net")] * 2 == smoke_tests
    assert ["az functionapp keys list"] * 2 == words(programs.calls, 4)


def test_a_smoke_test_may_be_left_out(
    programs: AzurePrograms, smoke_tests: list[tuple[str, str]], tmp_path: Path
) -> None:
    """A setting does this, or the removal of its pipeline; no request is sent then."""
    smoke_test(tmp_path, AzdEnvironment(values=SMOKE | {"LANDFALL_SMOKE": "off"}))
    (tmp_path / "pipelines" / "smoke.yaml").unlink()
    smoke_test(tmp_path, AzdEnvironment(values=SMOKE))
    assert ([], []) == (smoke_tests, programs.calls)


@pytest.mark.parametrize("answer", [None, {}, {"functionKeys": None}, ["k"]])
def test_keys_that_az_does_not_list_are_an_error(
    answer: Any, programs: AzurePrograms, smoke_tests: list[tuple[str, str]], tmp_path: Path
) -> None:
    """The call is named, and no test is made without a key."""
    programs.answer(answers={"az functionapp keys list": answer})
    with pytest.raises(CliError, match="az functionapp keys list"):
        smoke_test(tmp_path, AzdEnvironment(values=SMOKE))
    assert [] == smoke_tests


def test_a_deployment_is_examined_until_nothing_is_wrong(
    programs: AzurePrograms, pipelines: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Roles take minutes to count; what stays wrong ends the deployment with its command."""
    found = {
        state: Check(part="roles", subject="id-app", state=state, says="x", fix="azd provision")
        for state in (CheckState.OK, CheckState.WRONG)
    }
    looks = [CheckState.WRONG, CheckState.WRONG, CheckState.OK]
    monkeypatch.setattr("cli.deploy.after.DOCTOR_POLL_S", 0.0)
    monkeypatch.setattr("cli.deploy.after.examine", lambda *_: [found[looks.pop(0)]])
    programs.answer(answers={"az functionapp keys list": {"functionKeys": {"default": "k"}}})
    environment = AzdEnvironment(values=SMOKE)
    examine_deployment(environment, pipelines, lambda _identity: MemoryWorkspace())
    assert ([], 2) == (looks, capsys.readouterr().err.count("checking again"))
    looks.append(CheckState.WRONG)
    with pytest.raises(CliError, match=r"(?s)something is wrong after -1 s:.*id-app.*to fix it:    azd provision"):
        examine_deployment(environment, pipelines, lambda _identity: MemoryWorkspace(), within_s=-1)
