"""An Azure ML workspace, through Microsoft's client: registers what is missing, and changes nothing that exists."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from azure.core.exceptions import ResourceNotFoundError

from cli.errors import CliError

if TYPE_CHECKING:
    from azure.ai.ml import MLClient
    from azure.ai.ml.entities import AmlCompute

COMPUTE_WITHIN_S = 600
COMPUTE_POLL_S = 1.0
READ_TIMEOUT_S = 60


@dataclass(frozen=True, kw_only=True)
class WorkspaceId:
    """Names a workspace."""

    subscription: str
    resource_group: str
    workspace: str

    def asset(self, kind: str, name: str, version: str) -> str:
        """Return the full ARM id of an asset version; `kind` is ``codes`` or ``environments``."""
        return (
            f"/subscriptions/{self.subscription}/resourceGroups/{self.resource_group}/providers"
            f"/Microsoft.MachineLearningServices/workspaces/{self.workspace}/{kind}/{name}/versions/{version}"
        )


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A compute cluster that a pipeline asks for."""

    name: str
    vm_size: str
    needed_nodes: int
    """Nodes of the largest job that a pipeline submits to it."""
    max_nodes: int
    """Bound of a cluster that is created."""
    identity: str | None = None
    """ARM id of the user-assigned identity with which its jobs mount the datastores."""


class AzureMlWorkspace:
    """The assets of one workspace. Every method returns whether it had to create something."""

    def __init__(self, client: MLClient) -> None:
        self._client = client

    @classmethod
    def open(cls, identity: WorkspaceId) -> AzureMlWorkspace:
        """Open a workspace with the identity of this machine, as by `az login`; sends no request yet."""
        from azure.ai.ml import MLClient
        from azure.identity import DefaultAzureCredential

        credential = DefaultAzureCredential()
        client = MLClient(
            credential,
            identity.subscription,
            identity.resource_group,
            identity.workspace,
            show_progress=False,
            enable_telemetry=False,
            read_timeout=READ_TIMEOUT_S,
        )
        return cls(client)

    def ensure_code(self, name: str, version: str, folder: Path) -> bool:
        """Upload a folder as a code asset, unless that version exists."""
        from azure.ai.ml.entities._assets._artifacts.code import Code

        # The client has no public way to register code alone: `command(code=...)` uploads it with every submission,
        # which is what publishing avoids. Tests against the twin would notice if either private name changed.
        codes: Any = self._client._code  # noqa: SLF001
        return _create_if_absent(
            lambda: codes.get(name, version),
            lambda: codes.create_or_update(Code(name=name, version=version, path=str(folder.resolve()))),
        )

    def ensure_environment(self, name: str, version: str, *, image: str) -> bool:
        """Register an image, unless that version exists. Azure ML builds none: it would do that in the first job."""
        from azure.ai.ml.entities import Environment

        environments: Any = self._client.environments
        return _create_if_absent(
            lambda: environments.get(name, version),
            lambda: environments.create_or_update(Environment(name=name, version=version, image=image)),
        )

    def ensure_datastore(self, name: str, *, account: str, container: str) -> bool:
        """Register a container under a name, without credentials: jobs use the cluster's identity.

        Raises CliError where the name is taken by another container.
        """
        from azure.ai.ml.entities import AzureBlobDatastore

        datastores: Any = self._client.datastores
        wanted = AzureBlobDatastore(name=name, account_name=account, container_name=container)
        created = _create_if_absent(lambda: datastores.get(name), lambda: datastores.create_or_update(wanted))
        found = datastores.get(name)
        if (found.account_name, found.container_name) != (account, container):
            raise CliError(
                f"datastore {name}: expected container {container} of account {account}, got "
                f"{found.container_name} of {found.account_name}. Remove the datastore, or pass the right account."
            )
        return created

    def ensure_cluster(self, cluster: Cluster) -> bool:
        """Create a cluster that scales from 0 nodes, unless one of that name exists.

        Raises CliError where one exists that the pipelines' jobs could not run on, with the commands that change it,
        and where one is to be created without an identity.
        """
        computes: Any = self._client.compute
        try:
            problems = _misfits(cluster, computes.get(cluster.name), self._client)
        except ResourceNotFoundError:
            computes.begin_create_or_update(_new_cluster(cluster))
            self._await_cluster(cluster.name)
            return True
        if problems:
            raise CliError(f"cluster {cluster.name} exists and does not fit:\n" + "\n".join(problems))
        return False

    def _await_cluster(self, name: str) -> None:
        """Return when the cluster exists. The client's own poller would look only every 30 s."""
        deadline = time.monotonic() + COMPUTE_WITHIN_S
        computes: Any = self._client.compute
        while (state := computes.get(name).provisioning_state) != "Succeeded":
            if state in ("Failed", "Canceled") or time.monotonic() > deadline:
                raise CliError(f"cluster {name} was not created: its provisioning state is {state}. See the studio.")
            time.sleep(COMPUTE_POLL_S)


def _new_cluster(cluster: Cluster) -> AmlCompute:
    from azure.ai.ml.entities import AmlCompute, IdentityConfiguration, ManagedIdentityConfiguration

    if cluster.identity is None:
        raise CliError(
            f"cluster {cluster.name} does not exist. Its jobs mount the datastores with an identity: pass "
            "--cluster-identity with the ARM id of a user-assigned identity that has the roles Storage Blob Data "
            "Reader on the data and Storage Blob Data Contributor on the outputs."
        )
    identities = [ManagedIdentityConfiguration(resource_id=cluster.identity)]
    return AmlCompute(
        name=cluster.name,
        size=cluster.vm_size,
        min_instances=0,
        max_instances=cluster.max_nodes,
        idle_time_before_scale_down=120,
        ssh_public_access_enabled=False,
        identity=IdentityConfiguration(type="user_assigned", user_assigned_identities=identities),
    )


def _misfits(wanted: Cluster, found: Any, client: MLClient) -> list[str]:
    """Return why the pipelines' jobs could not run on a cluster that exists, each with what to do about it."""
    group, workspace = client.resource_group_name, client.workspace_name
    place = f"--name {wanted.name} --resource-group {group} --workspace-name {workspace}"
    if found.type.lower() != "amlcompute":
        return [f"  it is a compute of type {found.type}: name another cluster in the pipelines"]
    problems = []
    if found.size.lower() != wanted.vm_size.lower():
        problems.append(
            f"  its VM size is {found.size}, the pipelines state {wanted.vm_size}. A size cannot be changed: name "
            f"another cluster in the pipelines, or delete this one and publish again: az ml compute delete {place}"
        )
    if (found.max_instances or 0) < wanted.needed_nodes:
        problems.append(
            f"  it has at most {found.max_instances} nodes, a pipeline needs {wanted.needed_nodes}: "
            f"az ml compute update {place} --max-instances {wanted.needed_nodes}"
        )
    identities = [one.resource_id for one in (found.identity and found.identity.user_assigned_identities) or []]
    if not identities or (wanted.identity and wanted.identity.lower() not in map(str.lower, identities)):
        has = f"it has {', '.join(identities)}" if identities else "it has no user-assigned identity"
        problems.append(
            f"  {has}, and its jobs mount the datastores with one: az ml compute update {place} "
            f"--identity-type user_assigned --user-assigned-identities {wanted.identity or 'IDENTITY'}"
        )
    return problems


def _create_if_absent(look: Any, create: Any) -> bool:
    try:
        look()
    except ResourceNotFoundError:
        create()
        return True
    return False
