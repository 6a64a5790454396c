"""Blobs of a workspace: resolve the URIs of jobs' data, read and write blobs, and copy logs."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError
from azure.storage.blob import (
    BlobClient,
    BlobSasPermissions,
    BlobServiceClient,
    ContainerClient,
    ContainerSasPermissions,
    generate_blob_sas,
    generate_container_sas,
)

from local_azure.azure_ml.runs import RunBook
from local_azure.azure_ml.service import JobFailure, utcnow
from local_azure.azure_ml.workspace import Store, datastore_document

SAS_LIFETIME = dt.timedelta(days=1)

CONTAINER = "azureml"
_BLOCK_BYTES = 4 << 20  # the largest append that every API version accepts

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


class Storage:
    """Blob accounts by name. The first one is the workspace's own account."""

    def __init__(self, connection_strings: Mapping[str, str]) -> None:
        self._services = {
            name: BlobServiceClient.from_connection_string(text, retry_total=3)
            for name, text in connection_strings.items()
        }
        self._lock = threading.Lock()
        self._ensured: set[tuple[str, str]] = set()

    @property
    def workspace_account(self) -> str:
        """Account with code, logs and default outputs."""
        return next(iter(self._services))

    def container(self, location: BlobLocation) -> ContainerClient:
        """Return a client of the location's container. Raises JobFailure if the account is unknown."""
        service = self._services.get(location.account)
        if service is None:
            known = ", ".join(self._services)
            raise JobFailure(
                f"Storage account {location.account!r} is not one of this emulator's: {known}. "
                "LANDFALL_TWIN_STORAGE names them.",
                inner="StorageAccountNotFound",
            )
        return service.get_container_client(location.container)

    def writable_container(self, location: BlobLocation) -> ContainerClient:
        """Return the location's container, and create it if it does not exist."""
        client = self.container(location)
        key = (location.account, location.container)
        with self._lock:
            if key not in self._ensured:
                with contextlib.suppress(ResourceExistsError):  # already exists
                    client.create_container()
                self._ensured.add(key)
        return client

    def blob(self, location: BlobLocation) -> BlobClient:
        """Return a client of one blob."""
        return self.container(location).get_blob_client(location.path)

    def names_below(self, location: BlobLocation) -> Iterator[str]:
        """Yield the relative path of every blob in the folder; none if the container does not exist."""
        prefix = location.path.rstrip("/") + "/" if location.path.strip("/") else ""
        try:
            for name in self.container(location).list_blob_names(name_starts_with=prefix):
                relative = name[len(prefix) :]
                if relative:
                    yield relative
        except ResourceNotFoundError:
            return

    def download(self, location: BlobLocation, target: Path) -> None:
        """Write one blob to `target`. Raises ResourceNotFoundError if there is none."""
        stream = self.blob(location).download_blob(max_concurrency=2)  # fails before the file is created
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            stream.readinto(file)

    def read_url(self, location: BlobLocation) -> str:
        """Return a signed address with which anyone may read the blob for a day."""
        client = self.blob(location)
        signature = generate_blob_sas(
            account_name=location.account,
            container_name=location.container,
            blob_name=location.path,
            account_key=self._key(location.account),
            permission=BlobSasPermissions(read=True),
            expiry=utcnow() + SAS_LIFETIME,
        )
        return f"{client.url}?{signature}"

    def reader_url(self, location: BlobLocation) -> str:
        """Return a signed address with which anyone may read and list the container for a day."""
        signature = generate_container_sas(
            account_name=location.account,
            container_name=location.container,
            account_key=self._key(location.account),
            permission=ContainerSasPermissions(read=True, list=True),
            expiry=utcnow() + SAS_LIFETIME,
        )
        return f"{self.container(location).url}?{signature}"

    def upload_url(self, location: BlobLocation) -> str:
        """Return a signed address with which anyone may write to the container for a day."""
        client = self.writable_container(location)
        signature = generate_container_sas(
            account_name=location.account,
            container_name=location.container,
            account_key=self._key(location.account),
            permission=ContainerSasPermissions(read=True, add=True, create=True, write=True, list=True),
            expiry=utcnow() + SAS_LIFETIME,
        )
        return f"{client.url}?{signature}"

    def _key(self, account: str) -> str:
        return str(self._services[account].credential.account_key)


NO_ACCESS = (
    "Datastore {name} has no credentials, and the compute has no user-assigned identity that may access its storage. "
    "Error Code: ScriptExecution.StreamAccess.Authentication. Native Error: error in streaming from input data "
    "sources StreamError(PermissionDenied(None)). Error Message: Authentication failed when trying to access the "
    "stream. Make sure you have correct permissions set up."
)
"""Text from https://github.com/Azure/azureml-examples/issues/2994."""


@dataclass(frozen=True, kw_only=True)
class Catalogue:
    """Look-ups for the URIs in a workspace: datastores, outputs of earlier jobs, and data assets.

    `datastore(name)` returns the root of a datastore, `job_output(job, output)` the URI of an output, and `data(id)`
    the URI of a data asset. Each raises JobFailure if there is none.
    """

    datastore: Callable[[str], BlobLocation]
    job_output: Callable[[str, str], str]
    data: Callable[[str], str]


def catalogue(
    store: Store, runs: RunBook, workspace_id: str, workspace_account: str, *, may_mount: bool = True
) -> Catalogue:
    """Return the look-ups for URIs of a workspace's jobs.

    ``may_mount``: whether the caller has an identity with access to storage, which a datastore without credentials
    needs.
    """

    def datastore(name: str) -> BlobLocation:
        properties = datastore_document(store, workspace_id, name, workspace_account)
        if properties is None:
            raise JobFailure(f"Could not find datastore {name!r} in {workspace_id}.", inner="DatastoreNotFound")
        if not may_mount and properties["credentials"]["credentialsType"] == "None":
            raise JobFailure(NO_ACCESS.format(name=name), inner="ScriptExecution.StreamAccess.Authentication")
        return BlobLocation(account=properties["accountName"], container=properties["containerName"], path="")

    def job_output(job: str, output: str) -> str:
        run = runs.get(f"{workspace_id}/jobs/{job}")
        if run is None:
            raise JobFailure(f"Could not find job {job!r} in {workspace_id}.", inner="JobNotFound")
        if output not in (run.properties.get("outputs") or {}):
            raise JobFailure(f"Job {job!r} has no output {output!r}.", inner="OutputNotFound")
        return output_uri(run.name, output, run.properties["outputs"][output])

    def data(asset_id: str) -> str:
        asset = store.get("data", asset_id)
        if asset is None:
            raise JobFailure(f"Could not find data {asset_id}.", inner="DataNotFound")
        return str(asset["properties"]["dataUri"])

    return Catalogue(datastore=datastore, job_output=job_output, data=data)


def output_uri(run_name: str, output: str, definition: Mapping[str, str | None]) -> str:
    """Return the URI of an output: the job's URI with ${{name}} replaced, or the workspace's default."""
    uri = definition.get("uri") or "azureml://datastores/workspaceblobstore/paths/azureml/${{name}}/${{output_name}}/"
    return uri.replace("${{name}}", run_name).replace("${{output_name}}", output)


def resolve(uri: str, catalogue: Catalogue) -> BlobLocation:
    """Locate the blobs that `uri` names. Raises JobFailure, which lists the supported forms."""
    if match := _DATASTORE_FULL.fullmatch(uri) or _DATASTORE_SHORT.fullmatch(uri):
        return _below(catalogue.datastore(match["datastore"]), match["path"])
    if match := _JOB_OUTPUT.fullmatch(uri):
        return _below(resolve(catalogue.job_output(match["job"], match["output"]), catalogue), match["path"])
    if uri.startswith("/subscriptions/"):
        return resolve(catalogue.data(uri), catalogue)
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

    The host distinguishes the two forms: an emulator is addressed by IP address or as localhost.
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


def log_location(storage: Storage, run_name: str, log_file: str) -> BlobLocation:
    """Return the blob of a log file, with Azure ML's path."""
    path = f"ExperimentRun/dcid.{run_name}/{log_file}"
    return BlobLocation(account=storage.workspace_account, container=CONTAINER, path=path)


@dataclass(kw_only=True)
class LogMirror:
    """Copies every *.txt below `root` to the run's log blobs while the files grow."""

    storage: Storage
    run_name: str
    root: Path
    _sent_bytes: dict[str, int] = field(default_factory=dict)

    def names(self) -> list[str]:
        """Names of the log files that have a blob, in order."""
        return sorted(self._sent_bytes)

    def send_new(self) -> None:
        """Append the new content of the files since the last call."""
        for file in sorted(self.root.rglob("*.txt")):
            self._send(file, file.relative_to(self.root).as_posix())

    def _send(self, file: Path, name: str) -> None:
        location = log_location(self.storage, self.run_name, name)
        if name not in self._sent_bytes:
            self.storage.writable_container(location)
            self.storage.blob(location).create_append_blob()
            self._sent_bytes[name] = 0
        for block in _blocks(file, self._sent_bytes[name]):
            self.storage.blob(location).append_block(block)
            self._sent_bytes[name] += len(block)


def _blocks(file: Path, offset: int) -> Iterator[bytes]:
    with file.open("rb") as stream:
        stream.seek(offset)
        while block := stream.read(_BLOCK_BYTES):
            yield block
