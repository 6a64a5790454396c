"""``landfall publish``."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
from azure.core.exceptions import AzureError

from cli import ROOT
from cli.deploy import assets
from cli.deploy.assets import Containers, Publication
from cli.deploy.clusters import wanted_clusters, wanted_environments, wanted_files
from cli.deploy.workspace import AzureMlWorkspace, WorkspaceId
from cli.errors import CliError
from function_app.config.environments import IMAGE

IDENTITY = re.compile(
    r"/subscriptions/[^/\s]+/resourceGroups/[^/\s]+/providers/Microsoft\.ManagedIdentity/userAssignedIdentities/[^/\s]+",
    re.IGNORECASE,
)


def _identity(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and IDENTITY.fullmatch(value) is None:
        raise click.BadParameter(
            f"{value!r:.200} is not the ARM id of a user-assigned identity: "
            "`az identity show --query id` prints /subscriptions/…/userAssignedIdentities/NAME"
        )
    return value


def _digest(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    if IMAGE.fullmatch(value) is None:
        raise click.BadParameter(
            f"{value!r:.200} is not an image by digest, and a tag may later name another image: "
            "`az acr repository show --name REGISTRY --image REPOSITORY:TAG --query digest` prints the digest for "
            "REGISTRY.azurecr.io/REPOSITORY@sha256:…"
        )
    return value


@click.command(epilog="Example: landfall publish --workspace W --image R.azurecr.io/I@sha256:D")
@click.option(
    "--subscription",
    envvar="LANDFALL_SUBSCRIPTION_ID",
    show_envvar=True,
    required=True,
    help="Id of the Azure subscription.",
)
@click.option(
    "--resource-group",
    envvar="LANDFALL_RESOURCE_GROUP",
    show_envvar=True,
    required=True,
    help="Resource group of the workspace.",
)
@click.option(
    "--workspace",
    envvar="LANDFALL_WORKSPACE",
    show_envvar=True,
    required=True,
    help="Name of the Azure ML workspace.",
)
@click.option(
    "--pipelines",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=ROOT / "pipelines",
    show_default="pipelines",
    help="Folder with pipeline files, clusters.yaml and users' scripts.",
)
@click.option(
    "--image",
    callback=_digest,
    required=True,
    metavar="REPOSITORY@sha256:DIGEST",
    help="Training image in the workspace's registry, by digest (`az acr build` makes it).",
)
@click.option(
    "--data-account", help="Storage account of the data, to register its datastore (default: register none)."
)
@click.option(
    "--host-account", help="Storage account of the function app, to register its datastores (default: register none)."
)
@click.option(
    "--cluster-identity",
    callback=_identity,
    metavar="ARM_ID",
    help="User-assigned identity with which jobs mount the datastores (default: none; no cluster is created).",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of NAME=value lines.")
def publish(
    *,
    subscription: str,
    resource_group: str,
    workspace: str,
    pipelines: Path,
    image: str,
    data_account: str | None,
    host_account: str | None,
    cluster_identity: str | None,
    as_json: bool,
) -> None:
    """Register the training's environment and code, datastores and clusters in an Azure ML workspace.

    Prints the app settings that refer to them. A cluster gets the first size of its list in clusters.yaml that the
    region offers within the quota. Existing resources are not changed. If the pipelines' jobs could not run on an
    existing cluster, the command fails and says how to change the cluster. The code, and the files that pipelines
    define, are versioned by their digest, so that the same content is uploaded only once.
    """
    publication = Publication(
        root=ROOT,
        pipelines=pipelines.resolve(),
        identity=WorkspaceId(subscription=subscription, resource_group=resource_group, workspace=workspace),
        image=image,
        containers=Containers(data_account=data_account, host_account=host_account),
        clusters=wanted_clusters(pipelines, identity=cluster_identity),
        environments=wanted_environments(pipelines),
        files=wanted_files(pipelines),
    )
    settings = _publish(publication)
    if as_json:
        click.echo(json.dumps(settings, indent=1))
    else:
        for name, value in settings.items():
            click.echo(f"{name}={value}")


def _publish(publication: Publication) -> dict[str, str]:
    try:
        workspace = AzureMlWorkspace.open(publication.identity)
        return assets.publish(publication, workspace, lambda line: click.echo(line, err=True))
    except AzureError as error:
        problem = str(error).splitlines()[0] if str(error) else repr(error)
        raise CliError(f"Azure ML workspace {publication.identity.workspace}: {problem}") from error
