"""Addresses of data: from the forms that a job may name to an account, a container and a path."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from local_azure.azure_ml.errors import JobFailure

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


@dataclass(frozen=True, kw_only=True)
class Catalogue:
    """What a URI may refer to in a workspace: datastores, and outputs of earlier jobs.

    `datastore(name)` gives the root of a datastore; `job_output(job, output)` the URI of an output. Both
    raise JobFailure where there is none.
    """

    datastore: Callable[[str], BlobLocation]
    job_output: Callable[[str, str], str]


def resolve(uri: str, catalogue: Catalogue) -> BlobLocation:
    """Locate the blobs that `uri` names; JobFailure says which forms are understood."""
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

    Which of the two it is shows in the host: an emulator is addressed by number or as localhost.
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
