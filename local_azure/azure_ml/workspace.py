"""What a workspace holds besides runs: versioned assets, computes and datastores, looked up by ARM id."""

from __future__ import annotations

import re
from collections.abc import Mapping

from local_azure.azure_ml.errors import JobFailure
from local_azure.azure_ml.runs import RunBook
from local_azure.azure_ml.store import Document, Store
from local_azure.azure_ml.uris import BlobLocation, Catalogue

COMPUTES, DATASTORES = "computes", "datastores"
ASSETS = ("codes", "environments", "models")
DEFAULT_CONTAINER = "azureml"
BUILT_IN_DATASTORES = ("workspaceblobstore", "workspaceartifactstore")

WORKSPACE_ID = re.compile(
    r"/subscriptions/(?P<subscription>[^/]+)/resourceGroups/(?P<group>[^/]+)"
    r"/providers/Microsoft\.MachineLearningServices/workspaces/(?P<workspace>[^/]+)",
    re.IGNORECASE,
)
_ASSET_ID = re.compile(
    WORKSPACE_ID.pattern + r"/(?P<kind>\w+)/(?P<name>[^/]+)/versions/(?P<version>[^/]+)", re.IGNORECASE
)


def asset_name(asset_id: str) -> str:
    """Name part of a versioned asset's ARM id; ValueError for anything else."""
    match = _ASSET_ID.fullmatch(asset_id)
    if match is None:
        raise ValueError(f"expected the ARM id of an asset version, …/versions/N, saw {asset_id!r}")
    return match["name"]


def workspace_parts(workspace_id: str) -> Mapping[str, str]:
    """Subscription, group and workspace of a workspace's ARM id."""
    match = WORKSPACE_ID.fullmatch(workspace_id)
    if match is None:
        raise ValueError(f"expected the ARM id of a workspace, saw {workspace_id!r}")
    return match.groupdict()


def datastore_document(store: Store, workspace_id: str, name: str, workspace_account: str) -> Document | None:
    """Properties of a datastore; the two that every workspace is born with need no registration."""
    document = store.get(DATASTORES, f"{workspace_id}/datastores/{name}")
    if document is not None:
        return dict(document["properties"])
    if name.lower() not in BUILT_IN_DATASTORES:
        return None
    return {
        "datastoreType": "AzureBlob",
        "isDefault": name.lower() == "workspaceblobstore",
        "credentials": {"credentialsType": "None"},
        "accountName": workspace_account,
        "containerName": DEFAULT_CONTAINER,
        "endpoint": "core.windows.net",
        "protocol": "https",
        "serviceDataAccessAuthIdentity": "None",
        "tags": {},
        "properties": {},
    }


def catalogue(store: Store, runs: RunBook, workspace_id: str, workspace_account: str) -> Catalogue:
    """Look-ups for the URIs of a workspace's jobs."""

    def datastore(name: str) -> BlobLocation:
        properties = datastore_document(store, workspace_id, name, workspace_account)
        if properties is None:
            raise JobFailure(f"Could not find datastore {name!r} in {workspace_id}.", inner="DatastoreNotFound")
        return BlobLocation(account=properties["accountName"], container=properties["containerName"], path="")

    def job_output(job: str, output: str) -> str:
        run = runs.get(f"{workspace_id}/jobs/{job}")
        if run is None:
            raise JobFailure(f"Could not find job {job!r} in {workspace_id}.", inner="JobNotFound")
        if output not in (run.properties.get("outputs") or {}):
            raise JobFailure(f"Job {job!r} has no output {output!r}.", inner="OutputNotFound")
        return output_uri(run.name, output, run.properties["outputs"][output])

    return Catalogue(datastore=datastore, job_output=job_output)


def output_uri(run_name: str, output: str, definition: Mapping[str, str | None]) -> str:
    """Where an output goes: as the job says, ${{name}} filled in, or the workspace's default place."""
    uri = definition.get("uri") or "azureml://datastores/workspaceblobstore/paths/azureml/${{name}}/${{output_name}}/"
    return uri.replace("${{name}}", run_name).replace("${{output_name}}", output)
