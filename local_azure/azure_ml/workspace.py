"""What a workspace holds besides runs, and the blobs to which the URIs of its jobs' data lead."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from local_azure.azure_ml.runs import RunBook
from local_azure.azure_ml.service import JobFailure
from local_azure.azure_ml.store import Document, Store

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

_DATASTORE_FULL = re.compile(
    r"azureml://subscriptions/(?P<subscription>[^/]+)/resourcegroups/(?P<group>[^/]+)"
    r"(?:/providers/Microsoft\.MachineLearningServices)?/workspaces/(?P<workspace>[^/]+)"
    r"/datastores/(?P<datastore>[^/]+)(?:/paths/(?P<path>.*))?",
    re.IGNORECASE,
)
_DATASTORE_SHORT = re.compile(r"azureml://datastores/(?P<datastore>[^/]+)(?:/paths/(?P<path>.*))?", re.IGNORECASE)
_JOB_OUTPUT = re.compile(
    r"azureml://jobs/(?P<job>[^/]+)/outputs/(?P<output>[^/]+)(?:/paths)?(?:/(?P<path>.*))?", re.IGNORECASE
)
_WASBS = re.compile(r"wasbs?://(?P<container>[^@/]+)@(?P<account>[^./]+)\.[^/]+(?:/(?P<path>.*))?")


def asset_name(asset_id: str) -> str:
    """Return the name in a versioned asset's ARM id. Raises ValueError for other text."""
    match = _ASSET_ID.fullmatch(asset_id)
    if match is None:
        raise ValueError(f"{asset_id!r} is not the ARM id of an asset version, …/versions/N")
    return match["name"]


def workspace_parts(workspace_id: str) -> Mapping[str, str]:
    """Return subscription, group and workspace in a workspace's ARM id."""
    match = WORKSPACE_ID.fullmatch(workspace_id)
    if match is None:
        raise ValueError(f"{workspace_id!r} is not the ARM id of a workspace")
    return match.groupdict()


def datastore_document(store: Store, workspace_id: str, name: str, workspace_account: str) -> Document | None:
    """Return the properties of a datastore; the two built-in ones need no registration."""
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
    """Return the look-ups for URIs of a workspace's jobs."""

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
    """Return where an output goes: the job's URI with ${{name}} replaced, or the workspace's default."""
    uri = definition.get("uri") or "azureml://datastores/workspaceblobstore/paths/azureml/${{name}}/${{output_name}}/"
    return uri.replace("${{name}}", run_name).replace("${{output_name}}", output)


@dataclass(frozen=True, kw_only=True)
class BlobLocation:
    """A blob, or the folder of blobs below a path."""

    account: str
    container: str
    path: str

    def below(self, relative: str) -> BlobLocation:
        """The location of `relative` inside this folder."""
        path = f"{self.path.rstrip('/')}/{relative}".lstrip("/")
        return BlobLocation(account=self.account, container=self.container, path=path)


@dataclass(frozen=True, kw_only=True)
class Catalogue:
    """What a URI may refer to in a workspace: datastores, and outputs of earlier jobs.

    `datastore(name)` returns the root of a datastore, `job_output(job, output)` the URI of an output; both raise
    JobFailure where there is none.
    """

    datastore: Callable[[str], BlobLocation]
    job_output: Callable[[str, str], str]


def resolve(uri: str, catalogue: Catalogue) -> BlobLocation:
    """Locate the blobs that `uri` names. Raises JobFailure, which lists the supported forms."""
    if match := _DATASTORE_FULL.fullmatch(uri) or _DATASTORE_SHORT.fullmatch(uri):
        return _below(catalogue.datastore(match["datastore"]), match["path"])
    if match := _JOB_OUTPUT.fullmatch(uri):
        return _below(resolve(catalogue.job_output(match["job"], match["output"]), catalogue), match["path"])
    if match := _WASBS.fullmatch(uri):
        return BlobLocation(account=match["account"], container=match["container"], path=match["path"] or "")
    if uri.startswith(("http://", "https://")):
        return _from_url(uri)
    raise JobFailure(
        f"The URI {uri!r} is of no supported form. Expected azureml://datastores/NAME/paths/PATH, the same with "
        "subscription, resource group and workspace, azureml://jobs/NAME/outputs/OUTPUT, "
        "wasbs://CONTAINER@ACCOUNT.blob.core.windows.net/PATH or a blob's https:// address.",
        inner="InvalidUri",
    )


def _below(root: BlobLocation, path: str | None) -> BlobLocation:
    return root.below(path) if path else root


def _from_url(url: str) -> BlobLocation:
    """Locate a blob by https://ACCOUNT.blob.…/CONTAINER/PATH or, as emulators do, http://HOST:PORT/ACCOUNT/….

    The host shows which of the two it is: an emulator is addressed by IP address or as localhost.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    segments = unquote(parts.path).lstrip("/")
    if host == "localhost" or re.fullmatch(r"[\d.]+", host):
        account, _, segments = segments.partition("/")
    else:
        account = host.partition(".")[0]
    container, _, path = segments.partition("/")
    if not (account and container):
        raise JobFailure(f"The address {url!r} names no account and container.", inner="InvalidUri")
    return BlobLocation(account=account, container=container, path=path)
