"""What `landfall doctor` asks Azure: each thing is wrong once, and is found with its command."""

from __future__ import annotations

import copy
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cli.deploy.clusters import WantedCluster
from cli.doctor.azure import GRANTS, TOPICS, Deployment, azure_checks
from function_app.domain.checks import Check, CheckState
from local_azure.twin.parts import event_subscriptions
from tests.infra.deployment_rules import documented_grants
from tests.support.azure_programs import AzurePrograms
from tests.support.processes import REPOSITORY

GROUP = "/subscriptions/s/resourceGroups/rg-test"
GRID = f"{GROUP}/providers/Microsoft.EventGrid"
STORAGE = f"{GROUP}/providers/Microsoft.Storage/storageAccounts"
ENVIRONMENT = (
    f"{GROUP}/providers/Microsoft.MachineLearningServices/workspaces/mlw-x/environments/landfall-training/versions/1"
)
DEPLOYMENT = Deployment(subscription="s", resource_group="rg-test", workspace="mlw-x", environment_id=ENVIRONMENT)
SCOPES = {
    "host account": f"{STORAGE}/lfhostx",
    "workspace account": f"{STORAGE}/lfmlx",
    "workspace": f"{GROUP}/providers/Microsoft.MachineLearningServices/workspaces/mlw-x",
    "notification topic": f"{GRID}/topics/evgt-landfall-x",
    "Application Insights": f"{GROUP}/providers/Microsoft.Insights/components/appi-x",
    "key vault": f"{GROUP}/providers/Microsoft.KeyVault/vaults/kv-x",
    "registry": f"{GROUP}/providers/Microsoft.ContainerRegistry/registries/lfacrx",
    "container `datasets`": f"{STORAGE}/lfdatax/blobServices/default/containers/datasets",
    "container `quarantine`": f"{STORAGE}/lfdatax/blobServices/default/containers/quarantine",
    "container `landfall`": f"{STORAGE}/lfhostx/blobServices/default/containers/landfall",
    "container `runs`": f"{STORAGE}/lfhostx/blobServices/default/containers/runs",
    "container `landfall-dead-letters`": f"{STORAGE}/lfhostx/blobServices/default/containers/landfall-dead-letters",
    "queue `shard-uploaded`": f"{STORAGE}/lfhostx/queueServices/default/queues/shard-uploaded",
    "queue `run-changed`": f"{STORAGE}/lfhostx/queueServices/default/queues/run-changed",
}
REFUSED = "refused"
PRINCIPALS = {"id-app": "p-app", "id-cluster": "p-cluster", "topic of uploads": "p-up", "topic of runs": "p-runs"}
NAMES = {"storage": ("evgt-uploads-x", "p-up"), "azureml": ("evgt-runs-x", "p-runs")}


def subscription_of(topic: str) -> dict[str, Any]:
    """An event subscription as ARM shows it."""
    [wanted] = [one for one in event_subscriptions() if one["topic"] == topic]
    destination = {"queueName": wanted["queue"], "queueMessageTimeToLiveInSeconds": -1, "resourceId": "host"}
    properties = {
        "provisioningState": "Succeeded",
        "eventDeliverySchema": "EventGridSchema",
        "deliveryWithResourceIdentity": {
            "identity": {"type": "SystemAssigned"},
            "destination": {"endpointType": "StorageQueue", "properties": destination},
        },
        "deadLetterWithResourceIdentity": {
            "deadLetterDestination": {"properties": {"blobContainerName": wanted["dead_letter_container"]}}
        },
        "filter": {
            "includedEventTypes": list(reversed(wanted["included_event_types"])),
            "subjectBeginsWith": wanted.get("subject_begins_with", ""),
            "subjectEndsWith": "",
            "advancedFilters": wanted["advanced_filters"],
        },
    }
    return {"name": wanted["queue"], "properties": properties}


def whole() -> dict[str, Any]:
    """What a subscription answers in which nothing is wrong."""
    topics = [
        {"name": name, "identity": {"principalId": principal}, "properties": {"topicType": TOPICS[source]}}
        for source, (name, principal) in NAMES.items()
    ]
    roles = {
        f"az role assignment list --assignee {PRINCIPALS[who]}": [
            {"roleDefinitionName": role, "scope": SCOPES[scope]} for role, scope in grants
        ]
        for who, grants in GRANTS.items()
    }
    own = {"name": "evgt-landfall-x", "properties": {"inputSchema": "CloudEventSchemaV1_0"}}
    return {
        "az account show": {"user": {"name": "you@example.com"}},
        f"*{GRID}/systemTopics?": {"value": topics},
        "*evgt-uploads-x/eventSubscriptions": {"value": [subscription_of("storage")]},
        "*evgt-runs-x/eventSubscriptions": {"value": [subscription_of("azureml")]},
        f"*{GRID}/topics?": {"value": [own]},
        "az identity list": [
            {"name": f"{who}-x", "principalId": PRINCIPALS[who]} for who in ("id-app", "id-cluster")
        ],
        **roles,
        f"*{ENVIRONMENT}?": {"properties": {"image": f"lfacrx.azurecr.io/landfall-training@sha256:{'a' * 64}"}},
        "az acr show": {"name": "lfacrx"},
        "az acr repository show": {"digest": f"sha256:{'a' * 64}"},
    }


class Clusters:
    """A workspace whose clusters fit, except for what a test says."""

    def __init__(self, problems: list[tuple[str, str]] | None = None) -> None:
        self.problems = problems or []

    def examine(self, wanted: WantedCluster) -> list[tuple[str, str]]:
        """Return the test's problems for one of the clusters."""
        return self.problems if wanted.name == "landfall-gpu" else []


class Az:
    """`az` in this process, as `AzurePrograms` is it on PATH: it records its calls, and one of them may fail."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.answers, self.fails_at = whole(), 0

    def run(self, call: list[str], **_options: Any) -> subprocess.CompletedProcess[bytes]:
        """Answer as subprocess.run does."""
        self.calls.append(call)
        line = " ".join(call)
        known = self.answers.items()
        answer = next(
            found for start, found in known if line.startswith(start) or (start[0] == "*" and start[1:] in line)
        )
        if len(self.calls) == self.fails_at or answer == REFUSED:
            return subprocess.CompletedProcess(call, 1, b"", b"ERROR: (Refused)")
        return subprocess.CompletedProcess(call, 0, json.dumps(answer).encode(), b"")


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Az:
    az = Az()
    monkeypatch.setattr("cli.deploy.programs.subprocess.run", az.run)
    return az


@pytest.fixture
def pipelines(tmp_path: Path) -> Path:
    """One pipeline, on one cluster."""
    for name in ("clusters.yaml", "digits.yaml"):
        (tmp_path / name).write_text((REPOSITORY / "pipelines" / name).read_text())
    return tmp_path


def examined(pipelines: Path, workspace: Clusters | None = None) -> list[Check]:
    return azure_checks(DEPLOYMENT, pipelines, lambda _identity: workspace or Clusters())


def wrong(checks: list[Check]) -> list[tuple[str, str, str]]:
    return [(check.subject, check.says, check.fix) for check in checks if check.state is CheckState.WRONG]


def test_a_whole_deployment_has_no_finding(pipelines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every part was asked, and is good; here `az` is a program on PATH."""
    installed = AzurePrograms(tmp_path)
    installed.answer(answers=whole())
    monkeypatch.setenv("PATH", installed.path)
    checks = examined(pipelines)
    assert {CheckState.OK} == {check.state for check in checks}
    assert ["sign-in", "events", "roles", "clusters", "image"] == list(dict.fromkeys(check.part for check in checks))


def test_the_roles_are_those_of_the_security_page() -> None:
    """Another test compares the page with the templates; deployers and data owners are not checked."""
    rows = {(one.who.strip("`"), one.role, one.scope) for one in documented_grants()}
    assert {row for row in rows if row[0] in GRANTS} == {
        (who, role, scope) for who, grants in GRANTS.items() for role, scope in grants
    }


def changed(key: str, *path: Any, value: Any) -> dict[str, Any]:
    """Answers with one member exchanged."""
    answers = copy.deepcopy(whole())
    place = answers[key]
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    return answers


UPLOADS = ("*evgt-uploads-x/eventSubscriptions", "value", 0, "properties")
MISTAKES = [
    (
        changed(*UPLOADS, "filter", "includedEventTypes", value=["Microsoft.Storage.BlobDeleted"]),
        "includedEventTypes",
    ),
    (changed(*UPLOADS, "filter", "subjectBeginsWith", value="/blobServices/"), "subjectBeginsWith: expected /blob"),
    (changed(*UPLOADS, "filter", "subjectEndsWith", value=".tfrecord"), "subjectEndsWith: expected , got .tfrecord"),
    (changed(*UPLOADS, "filter", "advancedFilters", value=None), "advancedFilters: expected [{'operatorType'"),
    (changed(*UPLOADS, "provisioningState", value="Failed"), "provisioningState: expected Succeeded, got Failed"),
    (changed(*UPLOADS, "eventDeliverySchema", value="CloudEventSchemaV1_0"), "eventDeliverySchema: expected Event"),
    (changed(*UPLOADS, "deadLetterWithResourceIdentity", value=None), "blobContainerName: expected landfall-dead"),
    (
        changed(
            *UPLOADS,
            *("deliveryWithResourceIdentity", "destination", "properties", "queueMessageTimeToLiveInSeconds"),
            value=604800,
        ),
        "queueMessageTimeToLiveInSeconds: expected -1, got 604800",
    ),
    (changed("*evgt-runs-x/eventSubscriptions", "value", value=[]), "none that writes to the queue run-changed"),
    (
        changed(f"*{GRID}/topics?", "value", 0, "properties", "inputSchema", value="EventGridSchema"),
        "schema is Event",
    ),
    (changed(f"*{GRID}/topics?", "value", value=[]), "the resource group has none"),
    (
        changed("az role assignment list --assignee p-cluster", 4, "roleDefinitionName", value="AcrPush"),
        "lacks AcrPull on registry",
    ),
    (
        changed("az role assignment list --assignee p-app", 3, "scope", value=SCOPES["container `quarantine`"]),
        "lacks Storage Blob Data Reader on container `datasets`",
    ),
    (changed("az identity list", 1, "name", value="other"), "the resource group has no such identity"),
]


@pytest.mark.parametrize(("answers", "said"), MISTAKES, ids=[said[:30] for _, said in MISTAKES])
def test_what_is_wrong_in_azure_is_found(answers: dict[str, Any], said: str, programs: Az, pipelines: Path) -> None:
    """One thing, and only that; the templates correct it."""
    programs.answers = answers
    [(_, says, fix)] = wrong(examined(pipelines))
    assert said in says
    assert "azd provision" == fix


def test_a_missing_system_topic_is_found_with_its_roles(programs: Az, pipelines: Path) -> None:
    """Without it, uploads are noticed by the sweep only."""
    answers = whole()
    del answers[f"*{GRID}/systemTopics?"]["value"][0]
    programs.answers = answers
    assert ["Microsoft.Storage.StorageAccounts", "topic of uploads"] == [
        about for about, *_ in wrong(examined(pipelines))
    ]


def test_a_role_above_the_scope_is_enough(programs: Az, pipelines: Path) -> None:
    """An organisation may assign it to the resource group."""
    key = "az role assignment list --assignee p-cluster"
    programs.answers = changed(key, 4, "scope", value=GROUP)
    assert [] == wrong(examined(pipelines))
    programs.answers = changed(key, 4, "scope", value=f"{GROUP}-other")
    assert ["lacks AcrPull on registry"] == [says for _, says, _ in wrong(examined(pipelines))]


@pytest.mark.usefixtures("programs")
def test_a_cluster_that_does_not_fit_is_found_with_its_own_command(pipelines: Path) -> None:
    """`landfall publish` finds the same, when it is too late for a deployment."""
    problem = (
        "it has at most 1 node, but a pipeline needs 2",
        "az ml compute update --name landfall-gpu --max-instances 2",
    )
    assert [("cluster landfall-gpu", *problem)] == wrong(examined(pipelines, Clusters([problem])))


def test_an_image_that_the_registry_does_not_have_is_found(programs: Az, pipelines: Path) -> None:
    """Nodes would be paid for until they fail to pull it."""
    programs.answers = whole() | {"az acr repository show": REFUSED}
    [(about, says, fix)] = wrong(examined(pipelines))
    assert ("environment 1", "azd provision") == (about, fix)
    assert says.startswith("the registry does not show its image lfacrx.azurecr.io/landfall-training@sha256:")


def test_without_a_sign_in_nothing_else_is_asked_or_passed_as_good(programs: Az, pipelines: Path) -> None:
    """One check, unknown, with the command."""
    programs.fails_at = 1
    [check] = examined(pipelines)
    assert (CheckState.UNKNOWN, "az login") == (check.state, check.fix)
    assert 1 == len(programs.calls)


def test_each_call_that_is_refused_makes_its_part_unknown(programs: Az, pipelines: Path) -> None:
    """The other parts are asked all the same."""
    examined(pipelines)
    last = len(programs.calls)
    for number in range(2, last):
        programs.calls.clear()
        programs.fails_at = number
        checks = examined(pipelines)
        unknown = [check for check in checks if check.state is CheckState.UNKNOWN]
        assert 1 == len(unknown), f"call {number}"
        assert "ended with exit code 1" in unknown[0].says
        assert {"events", "roles", "clusters", "image"} <= {check.part for check in checks}


@pytest.mark.parametrize("answer", [{"value": [{"name": None}]}, {"value": 5}, [], None])
def test_an_answer_of_another_shape_is_unknown(answer: Any, programs: Az, pipelines: Path) -> None:
    """No stack trace."""
    programs.answers = whole() | {f"*{GRID}/topics?": answer}
    [unknown] = [check for check in examined(pipelines) if check.state is CheckState.UNKNOWN]
    assert "printed unexpected output" in unknown.says
