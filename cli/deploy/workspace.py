"""An Azure ML workspace, through Microsoft's client: registers what is missing, and changes nothing that exists."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from azure.core.exceptions import ResourceNotFoundError

from cli.deploy.clusters import (
    QUOTA_PAGE,
    Choice,
    OfferedSize,
    Region,
    WantedCluster,
    choose_size,
    misfits,
    new_cluster,
    quota_to_request,
)
from cli.errors import CliError

if TYPE_CHECKING:
    from azure.ai.ml import MLClient

COMPUTE_WITHIN_S = 600
COMPUTE_POLL_S = 1.0
READ_TIMEOUT_S = 60
FILES_DATASTORE = "workspaceblobstore"
"""The datastore for users' data that each workspace has."""
BLOCK_BYTES = 4 << 20
"""Bytes of one request of an upload; a larger file is sent in blocks, each of which is repeated by itself."""


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
class PublishedCluster:
    """A cluster that exists, and whether it had to be created."""

    created: bool
    choice: Choice


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

    def ensure_code(self, name: str, version: str, folder: Path, *, commit: str | None = None) -> bool:
        """Upload a folder as a code asset, unless that version exists: it keeps the commit of its first upload."""
        from azure.ai.ml.entities._assets._artifacts.code import Code

        from function_app.domain.jobs import COMMIT_TAG

        class TaggedCode(Code):
            """Code whose tags reach the service: the client's own class leaves them out of its request."""

            def _to_rest_object(self) -> Any:
                resource: Any = super()._to_rest_object()
                resource.properties.tags = self.tags or None
                return resource

        # The client has no public way to register code alone: `command(code=...)` uploads it with every submission,
        # which is what publishing avoids. Tests against the twin would notice if either private name changed.
        codes: Any = self._client._code  # noqa: SLF001
        code = TaggedCode(
            name=name, version=version, path=str(folder.resolve()), tags={COMMIT_TAG: commit} if commit else None
        )
        return _create_if_absent(lambda: codes.get(name, version), lambda: codes.create_or_update(code))

    def ensure_environment(self, name: str, version: str, *, image: str, conda_file: str | None = None) -> bool:
        """Register an image, unless that version exists. Azure ML installs a conda file on it in the first job.

        Raises CliError if the version exists with another image.
        """
        from azure.ai.ml.entities import Environment

        environments: Any = self._client.environments
        created = _create_if_absent(
            lambda: environments.get(name, version),
            lambda: environments.create_or_update(
                Environment(name=name, version=version, image=image, conda_file=conda_file and json.loads(conda_file))
            ),
        )
        if not created and (found := environments.get(name, version).image) != image:
            raise CliError(
                f"environment {name}:{version}: expected image {image}, got {found}. A version's image cannot be "
                "changed: push the expected image again, or change the image's files, which results in another "
                "version."
            )
        return created

    def ensure_files(self, name: str, version: str, files: Mapping[str, Path]) -> bool:
        """Upload files to the workspace's storage and register their folder, unless that version exists.

        The asset is registered last, so that an existing version is complete. The client's own upload takes only
        whole folders, and works only in the public cloud.
        """
        from azure.ai.ml.entities import Data

        data: Any = self._client.data
        folder = f"{name}/{version}"
        uri = f"azureml://datastores/{FILES_DATASTORE}/paths/{folder}/"

        def create() -> None:
            self._upload(folder, files)
            data.create_or_update(Data(name=name, version=version, type="uri_folder", path=uri))

        return _create_if_absent(lambda: data.get(name, version), create)

    def _upload(self, folder: str, files: Mapping[str, Path]) -> None:
        """Upload files to the workspace's blob storage, as the identity of this machine."""
        from azure.identity import DefaultAzureCredential
        from azure.storage.blob import ContainerClient

        store: Any = self._client.datastores.get(FILES_DATASTORE)
        address = (
            os.environ.get("LANDFALL_WORKSPACE_BLOB_URI") or f"https://{store.account_name}.blob.{store.endpoint}"
        )
        with ContainerClient(
            address, store.container_name, credential=DefaultAzureCredential(), max_single_put_size=BLOCK_BYTES
        ) as container:
            for name, path in files.items():
                with path.open("rb") as stream:
                    container.upload_blob(f"{folder}/{name}", stream, overwrite=True)

    def ensure_datastore(self, name: str, *, account: str, container: str) -> bool:
        """Register a container under a name, without credentials: jobs use the cluster's identity.

        Raises CliError if the name is taken by another container.
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

    def archive_model(self, name: str, version: str) -> None:
        """Archive a version of a model, which hides it from lists: Azure ML's client cannot delete it.

        Can be repeated.
        """
        models: Any = self._client.models
        models.archive(name, version)

    def log_tail(self, job: str, *, max_bytes: int) -> str | None:
        """Return the end of a job's log, None if there is none. Raises LogUnreadableError."""
        from function_app.adapters.azure_ml_logs import JobLogs

        return JobLogs(client_id=None).tail(self._client, job, max_bytes=max_bytes)

    def ensure_cluster(self, wanted: WantedCluster) -> PublishedCluster:
        """Create a cluster with the first available size of its list, unless it exists.

        Raises CliError if the pipelines' jobs could not run on an existing cluster, with the commands that change it,
        or if the cluster cannot be created.
        """
        computes: Any = self._client.compute
        try:
            found = computes.get(wanted.name)
        except ResourceNotFoundError:
            choice = choose_size(wanted, self.region())
            computes.begin_create_or_update(new_cluster(wanted, choice.vm_size))
            self._await_cluster(wanted.name)
            return PublishedCluster(created=True, choice=choice)
        group, workspace = self._client.resource_group_name, self._client.workspace_name
        place = f"--name {wanted.name} --resource-group {group} --workspace-name {workspace}"
        if problems := misfits(wanted, found, self._location, place):
            raise CliError(f"cluster {wanted.name} exists and does not fit:\n" + "\n".join(problems))
        size = wanted.cluster.size(found.size)
        return PublishedCluster(created=False, choice=Choice(vm_size=size.vm_size if size else found.size))

    def examine(self, wanted: WantedCluster) -> list[tuple[str, str]]:
        """Return what is wrong with a cluster that the pipelines name, each with the command that fixes it."""
        computes: Any = self._client.compute
        try:
            found = computes.get(wanted.name)
        except ResourceNotFoundError:
            return [("the workspace does not have it", "azd provision")]
        group, workspace = self._client.resource_group_name, self._client.workspace_name
        place = f"--name {wanted.name} --resource-group {group} --workspace-name {workspace}"
        problems = []
        if found.provisioning_state != "Succeeded":
            problems.append((f"its provisioning state is {found.provisioning_state}", f"az ml compute show {place}"))
        for problem in misfits(wanted, found, self._location, place):
            says, _, command = problem.strip().partition(": az ")
            problems.append((says, f"az {command}" if command else "azd up"))
        return problems or self._without_quota(wanted, str(found.size))

    def _without_quota(self, wanted: WantedCluster, vm_size: str) -> list[tuple[str, str]]:
        """Return why a cluster gets no nodes, with the quota to request."""
        region = self.region()
        refusal = region.refusal(vm_size, wanted.cluster.priority, wanted.needed_nodes)
        if refusal is None:
            return []
        return [(refusal, f"ask at {QUOTA_PAGE} for: {'; '.join(quota_to_request(wanted, region))}")]

    @cached_property
    def _location(self) -> str:
        return str(self._client.workspaces.get(self._client.workspace_name).location).lower()

    def region(self) -> Region:
        """Return what the workspace's region offers."""
        computes: Any = self._client.compute
        sizes = {
            size.name.lower(): OfferedSize(
                vcpus=int(_member(size, "vCPUs", "v_cp_us") or 0),
                family=size.family or size.name,
                low_priority=bool(_member(size, "lowPriorityCapable", "low_priority_capable")),
            )
            for size in computes.list_sizes(location=self._location)
        }
        quotas = {
            usage.name["value"]: int(usage.limit or 0) for usage in computes.list_usage(location=self._location)
        }
        return Region(name=self._location, sizes=sizes, quotas=quotas)

    def _await_cluster(self, name: str) -> None:
        """Return when the cluster exists. The client's own poller would look only every 30 s."""
        deadline = time.monotonic() + COMPUTE_WITHIN_S
        computes: Any = self._client.compute
        while (state := computes.get(name).provisioning_state) != "Succeeded":
            if state in ("Failed", "Canceled") or time.monotonic() > deadline:
                raise CliError(f"cluster {name} was not created: its provisioning state is {state}. See the studio.")
            time.sleep(COMPUTE_POLL_S)


def _member(size: Any, *names: str) -> Any:
    """Return the first member that is set: azure-ai-ml 1.35 sets members under their names in the REST API."""
    return next((value for name in names if (value := getattr(size, name, None)) is not None), None)


def _create_if_absent(look: Any, create: Any) -> bool:
    try:
        look()
    except ResourceNotFoundError:
        create()
        return True
    return False
