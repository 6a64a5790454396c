"""Remove what smoke tests created, also interrupted ones, and list what stays."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from azure.core.exceptions import AzureError, ResourceNotFoundError
from azure.storage.blob import ContainerClient

from cli.deploy.workspace import WorkspaceId
from cli.errors import CliError
from cli.remote.api_client import ApiClient
from cli.smoke.course import DATASET, first_line
from function_app.domain.run_states import SETTLED, RunState

MAX_RUNS = 30
"""Newest runs that are looked at: three for each of the last tests."""
_OUTPUT = re.compile(
    r"azureml://subscriptions/(?P<subscription>[^/]+)/resourcegroups/(?P<group>[^/]+)/workspaces/(?P<workspace>[^/]+)/.+"
)


class ModelArchive(Protocol):
    """The part of a workspace that a removal needs."""

    def archive_model(self, name: str, version: str) -> None:
        """Hide a version of a model."""
        ...


@dataclass(kw_only=True)
class Removal:
    """What was removed, what could not be, and what stays on purpose."""

    removed: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    stays: list[str] = field(default_factory=list)


def remove_all(
    api: ApiClient, data: ContainerClient, open_workspace: Callable[[WorkspaceId], ModelArchive]
) -> Removal:
    """Cancel the smoke tests' runs, delete their uploads and archive their models, as far as each is allowed."""
    found = Removal()
    try:
        runs = api.runs(dataset=DATASET, limit=MAX_RUNS)
    except CliError as error:
        found.problems.append(f"the runs were not canceled: {error.message}")
        runs = []
    _cancel(api, runs, found)
    try:
        uploads = list(data.list_blob_names(name_starts_with=f"{DATASET}/"))
    except AzureError as error:
        found.problems.append(f"uploads below {DATASET}/ were not deleted: {first_line(error)}")
        uploads = []
    # Uploads are deleted last, so a version without any is one that a test has removed completely.
    versions = {name.split("/")[1] for name in uploads}
    _archive_models([run for run in runs if run["version"] in versions], open_workspace, found)
    _delete(data, uploads, found)
    found.stays += _staying(runs)
    return found


def _cancel(api: ApiClient, runs: list[dict[str, Any]], found: Removal) -> None:
    for run in runs:
        if run["state"] not in {*SETTLED, RunState.COMPLETED}:
            try:
                api.cancel(run["run_id"])
                found.removed.append(f"run {run['run_id']}: canceled")
            except CliError as error:
                found.problems.append(f"run {run['run_id']}: not canceled: {error.message}")


def _delete(data: ContainerClient, uploads: list[str], found: Removal) -> None:
    try:
        for name in uploads:
            with contextlib.suppress(ResourceNotFoundError):  # another one has deleted it
                data.delete_blob(name)
    except AzureError as error:
        found.problems.append(f"uploads below {DATASET}/ were not deleted: {first_line(error)}")
        return
    if uploads:
        found.removed.append(f"{len(uploads)} uploads below {DATASET}/")


def _archive_models(
    runs: list[dict[str, Any]], open_workspace: Callable[[WorkspaceId], ModelArchive], found: Removal
) -> None:
    registered = [run for run in runs if run["model_name"]]
    if not registered:
        return
    identity = workspace_of(registered[0])
    if identity is None:
        found.problems.append("the models were not archived: their runs name no workspace")
        return
    workspace = open_workspace(identity)
    for run in registered:
        name, version = run["model_name"], run["model_version"]
        try:
            workspace.archive_model(name, version)
            found.removed.append(f"model {name} version {version}: archived")
        except AzureError as error:
            found.problems.append(f"model {name} version {version} was not archived: {first_line(error)}")


def workspace_of(run: Mapping[str, Any]) -> WorkspaceId | None:
    """Return the workspace to which a run's outputs belong."""
    match = next(filter(None, map(_OUTPUT.fullmatch, run["outputs"].values())), None)
    if match is None:
        return None
    return WorkspaceId(
        subscription=match["subscription"], resource_group=match["group"], workspace=match["workspace"]
    )


def _staying(runs: list[dict[str, Any]]) -> Iterator[str]:
    if runs:
        yield (
            "reports, models and checkpoints, some hundred kilobytes: az storage blob delete-batch --auth-mode login "
            f"--account-name HOST_ACCOUNT --source runs --pattern '{DATASET}/*'"
        )
        yield "the jobs in Azure ML's list, which cost nothing and which it keeps"
        yield f"manifests and history of {DATASET}, some kilobytes: the ledger keeps everything"
