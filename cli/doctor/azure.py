"""Checks that need the user's own rights: event subscriptions, roles, clusters, quota, the image."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from azure.core.exceptions import AzureError

from cli.deploy.clusters import WantedCluster, wanted_clusters
from cli.deploy.programs import az, reading
from cli.deploy.workspace import WorkspaceId
from cli.errors import CliError
from function_app.domain.checks import Check, CheckState
from local_azure.twin.parts import event_subscriptions
from shared.safe_text import one_line

EVENT_GRID_VERSION, ML_VERSION = "2025-02-15", "2025-09-01"
TOPICS = {"storage": "Microsoft.Storage.StorageAccounts", "azureml": "Microsoft.MachineLearningServices.Workspaces"}
"""Source of events, as the twin names it → the type of its system topic."""
SYSTEM_TOPICS = {"topic of uploads": TOPICS["storage"], "topic of runs": TOPICS["azureml"]}
PROVISION = "azd provision"
MAX_SAYS_CHARS = 1000

GRANTS = {
    "id-app": (
        ("Storage Blob Data Owner", "host account"),
        ("Storage Queue Data Contributor", "host account"),
        ("Storage Table Data Contributor", "host account"),
        ("Storage Blob Data Reader", "container `datasets`"),
        ("Storage Blob Data Contributor", "container `quarantine`"),
        ("Storage Blob Data Reader", "workspace account"),
        ("AzureML Data Scientist", "workspace"),
        ("EventGrid Data Sender", "notification topic"),
        ("Monitoring Metrics Publisher", "Application Insights"),
        ("Key Vault Secrets User", "key vault"),
    ),
    "id-cluster": (
        ("Storage Blob Data Reader", "container `datasets`"),
        ("Storage Blob Data Reader", "container `landfall`"),
        ("Storage Blob Data Contributor", "container `runs`"),
        ("Storage Blob Data Contributor", "workspace account"),
        ("AcrPull", "registry"),
    ),
    "topic of uploads": (
        ("Storage Queue Data Message Sender", "queue `shard-uploaded`"),
        ("Storage Blob Data Contributor", "container `landfall-dead-letters`"),
    ),
    "topic of runs": (
        ("Storage Queue Data Message Sender", "queue `run-changed`"),
        ("Storage Blob Data Contributor", "container `landfall-dead-letters`"),
    ),
}
"""Identity → its roles and scopes, in the words of docs/security.md, which has the reasons."""
_SCOPES = {
    "host account": r"/storageAccounts/lfhost[^/]*",
    "workspace account": r"/storageAccounts/lfml[^/]*",
    "workspace": r"Microsoft\.MachineLearningServices/workspaces/[^/]+",
    "notification topic": r"Microsoft\.EventGrid/topics/[^/]+",
    "Application Insights": r"/components/[^/]+",
    "key vault": r"/vaults/[^/]+",
    "registry": r"/registries/[^/]+",
}


class Clusters(Protocol):
    """The part of a workspace that the checks need."""

    def examine(self, wanted: WantedCluster) -> list[tuple[str, str]]:
        """Return what is wrong with a cluster, each with the command that fixes it."""
        ...


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """Where things are, as the app or azd's environment says."""

    subscription: str
    resource_group: str
    workspace: str
    environment_id: str

    @property
    def group_id(self) -> str:
        """ARM id of the resource group."""
        return f"/subscriptions/{self.subscription}/resourceGroups/{self.resource_group}"


Finding = tuple[str, str, str]
"""Subject, problem, and the command that fixes it; if the last two are empty, nothing is wrong."""


def azure_checks(
    deployment: Deployment, pipelines: Path, open_workspace: Callable[[WorkspaceId], Clusters]
) -> list[Check]:
    """Return the checks that `az` can make. A check that failed to run is unknown, never good."""
    signed_in = _asked("sign-in", "az", partial(_sign_in, deployment))
    if any(check.state is not CheckState.OK for check in signed_in):
        return signed_in
    topics: list[Mapping[str, Any]] = []
    identity = WorkspaceId(
        subscription=deployment.subscription,
        resource_group=deployment.resource_group,
        workspace=deployment.workspace,
    )
    return [
        *signed_in,
        *_asked("events", "system topics", partial(_topics, deployment, topics)),
        *_asked("events", "notification topic", partial(_notification_topic, deployment)),
        *_asked("roles", "identities", partial(_roles, deployment, topics)),
        *_asked("clusters", "sizes, identity and quota", partial(_clusters, identity, pipelines, open_workspace)),
        *_asked("image", "registry", partial(_image, deployment)),
    ]


def _asked(part: str, subject: str, ask: Callable[[], Iterator[Finding]]) -> list[Check]:
    """Return the findings of one part as checks; a CliError becomes an unknown check."""
    checks = []
    try:
        for about, says, fix in ask():
            state = CheckState.WRONG if fix else CheckState.OK
            checks.append(Check(part=part, subject=about, state=state, says=shown_on_one_line(says), fix=fix))
    except CliError as error:
        unknown, fix = CheckState.UNKNOWN, "az login" if part == "sign-in" else "landfall doctor"
        checks.append(
            Check(part=part, subject=subject, state=unknown, says=shown_on_one_line(error.message), fix=fix)
        )
    except AzureError as error:
        unknown, says = CheckState.UNKNOWN, str(error).partition("\n")[0] or repr(error)
        checks.append(Check(part=part, subject=subject, state=unknown, says=shown_on_one_line(says), fix="az login"))
    return checks


def shown_on_one_line(text: str) -> str:
    """Return what a program said, bounded and on one line."""
    return one_line(" ".join(text.split()))[:MAX_SAYS_CHARS]


def _sign_in(deployment: Deployment) -> Iterator[Finding]:
    fix = "sign in with: az login"
    found = az("account", "show", "--subscription", deployment.subscription, fix=fix)
    with reading("az account show"):
        yield "az", f"signed in as {(found['user'] or {}).get('name', 'an unknown user')}", ""


def _rest(path: str, version: str) -> Any:
    fix = "check your rights: the role Reader on the resource group is enough"
    return az("rest", "--method", "get", "--url", f"{path}?api-version={version}", fix=fix)


def listed(path: str, version: str) -> list[Mapping[str, Any]]:
    """Return the resources below a path, as ARM shows them. Raises CliError."""
    found = _rest(path, version)
    with reading("az rest"):
        return list(found["value"])


def _topics(deployment: Deployment, topics: list[Mapping[str, Any]]) -> Iterator[Finding]:
    """Yield the system topics with their subscriptions; they are added to ``topics``."""
    place = f"{deployment.group_id}/providers/Microsoft.EventGrid/systemTopics"
    topics += listed(place, EVENT_GRID_VERSION)
    for wanted in event_subscriptions():
        kind = TOPICS[str(wanted["topic"])]
        with reading("az rest"):
            of_kind = [one for one in topics if one["properties"]["topicType"].lower() == kind.lower()]
        if not of_kind:
            yield kind, "there is no system topic for it, so its events are not sent", PROVISION
            continue
        named = of_kind[0]["name"]
        found = listed(f"{place}/{named}/eventSubscriptions", EVENT_GRID_VERSION)
        with reading("az rest"):
            problems = list(misfits(wanted, found))
        for problem in problems:
            yield f"subscription of {named}", problem, PROVISION
        if not problems:
            yield f"subscription of {named}", f"its filters are right, and it writes to {wanted['queue']}", ""


def misfits(wanted: Mapping[str, Any], found: list[Mapping[str, Any]]) -> Iterator[str]:
    """Yield how the subscription to a queue differs from the one that is wanted."""
    to_queue = [one for one in found if _destination(one).get("queueName") == wanted["queue"]]
    if not to_queue:
        yield f"there is none that writes to the queue {wanted['queue']}"
        return
    properties = to_queue[0]["properties"]
    filters, destination = properties.get("filter") or {}, _destination(to_queue[0])
    dead = (properties.get("deadLetterWithResourceIdentity") or {}).get("deadLetterDestination") or {}
    pairs = {
        "provisioningState": ("Succeeded", properties.get("provisioningState")),
        "eventDeliverySchema": ("EventGridSchema", properties.get("eventDeliverySchema")),
        "includedEventTypes": (
            sorted(wanted["included_event_types"]),
            sorted(filters.get("includedEventTypes") or []),
        ),
        "subjectBeginsWith": (wanted.get("subject_begins_with", ""), filters.get("subjectBeginsWith") or ""),
        "subjectEndsWith": ("", filters.get("subjectEndsWith") or ""),
        "advancedFilters": (wanted["advanced_filters"], filters.get("advancedFilters") or []),
        "queueMessageTimeToLiveInSeconds": (
            wanted["message_ttl_s"],
            destination.get("queueMessageTimeToLiveInSeconds"),
        ),
        "blobContainerName": (
            wanted["dead_letter_container"],
            (dead.get("properties") or {}).get("blobContainerName"),
        ),
    }
    yield from (f"{name}: expected {right}, got {seen}" for name, (right, seen) in pairs.items() if right != seen)


def _destination(subscription: Mapping[str, Any]) -> Mapping[str, Any]:
    delivery = subscription["properties"].get("deliveryWithResourceIdentity") or {}
    destination = delivery.get("destination") or subscription["properties"].get("destination") or {}
    return destination.get("properties") or {}


def _notification_topic(deployment: Deployment) -> Iterator[Finding]:
    found = listed(f"{deployment.group_id}/providers/Microsoft.EventGrid/topics", EVENT_GRID_VERSION)
    with reading("az rest"):
        schemas = {one["name"]: one["properties"]["inputSchema"] for one in found}
    if not schemas:
        yield "notification topic", "the resource group has none", PROVISION
    for name, schema in schemas.items():
        right = schema == "CloudEventSchemaV1_0"
        says = "accepts CloudEvents" if right else f"its schema is {schema}, but the app sends CloudEvents"
        yield name, says, "" if right else PROVISION


def _roles(deployment: Deployment, topics: list[Mapping[str, Any]]) -> Iterator[Finding]:
    """Yield the roles that each identity lacks."""
    fix = "check your rights: the role Reader on the resource group is enough"
    identities = az("identity", "list", "--resource-group", deployment.resource_group, fix=fix) or []
    with reading("az identity list"):
        principals = {who: _principal(who, identities, topics) for who in GRANTS}
    for who, principal in principals.items():
        if not principal:
            yield who, "the resource group has no such identity", PROVISION
            continue
        arguments = ("--assignee", principal, "--all", "--subscription", deployment.subscription)
        found = az("role", "assignment", "list", *arguments, fix=fix) or []
        with reading("az role assignment list"):
            held = [(one["roleDefinitionName"], one["scope"]) for one in found]
        missing = [f"{role} on {scope}" for role, scope in GRANTS[who] if not _is_held(role, scope, held, deployment)]
        says = f"lacks {', '.join(missing)}" if missing else f"has its {len(GRANTS[who])} roles"
        yield who, says, PROVISION if missing else ""


def _principal(who: str, identities: list[Mapping[str, Any]], topics: list[Mapping[str, Any]]) -> str:
    if who in SYSTEM_TOPICS:
        kind = SYSTEM_TOPICS[who].lower()
        found = [one.get("identity") or {} for one in topics if one["properties"]["topicType"].lower() == kind]
    else:
        found = [one for one in identities if one["name"].startswith(who)]
    return str(found[0].get("principalId") or "") if found else ""


def _is_held(role: str, scope: str, held: list[tuple[str, str]], deployment: Deployment) -> bool:
    """Whether a role is assigned at its scope, or above it."""
    kind, _, name = scope.partition(" ")
    pattern = rf"/{kind}s/{name.strip('`')}" if name.startswith("`") else _SCOPES[scope]
    return any(
        role == assigned and (re.search(rf"{pattern}$", at, re.IGNORECASE) or _is_above(at, deployment))
        for assigned, at in held
    )


def _is_above(scope: str, deployment: Deployment) -> bool:
    return f"{deployment.group_id}/".lower().startswith(f"{scope.rstrip('/')}/".lower())


def _clusters(
    identity: WorkspaceId, pipelines: Path, open_workspace: Callable[[WorkspaceId], Clusters]
) -> Iterator[Finding]:
    workspace = open_workspace(identity)
    for wanted in wanted_clusters(pipelines):
        problems = workspace.examine(wanted)
        yield from ((f"cluster {wanted.name}", says, fix) for says, fix in problems)
        if not problems:
            yield f"cluster {wanted.name}", "its size, priority, bounds, identity and quota fit the pipelines", ""


def _image(deployment: Deployment) -> Iterator[Finding]:
    found = _rest(deployment.environment_id, ML_VERSION)
    with reading("az rest"):
        image = str(found["properties"]["image"])
    server, _, name = image.partition("/")
    registry, version = server.partition(".")[0], deployment.environment_id.rpartition("/")[2]
    az("acr", "show", "--name", registry, fix=f"the registry {server} of the image cannot be looked at")
    try:
        az("acr", "repository", "show", "--name", registry, "--image", name, fix="")
    except CliError as error:
        yield f"environment {version}", f"the registry does not show its image {image}: {error.message}", PROVISION
        return
    yield f"environment {version}", f"the registry has its image {image}", ""
