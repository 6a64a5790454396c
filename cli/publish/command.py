"""``landfall publish``."""

from __future__ import annotations

import json
from pathlib import Path

import click
from azure.core.exceptions import AzureError

from cli.errors import CliError
from cli.publish import assets
from cli.publish.assets import Containers, Publication
from cli.publish.workspace import AzureMlWorkspace, Cluster, WorkspaceId
from function_app.config.pipeline_files import load_pipelines

ROOT = Path(__file__).resolve().parents[2]


@click.command()
@click.option("--subscription", envvar="LANDFALL_SUBSCRIPTION_ID", required=True)
@click.option("--resource-group", envvar="LANDFALL_RESOURCE_GROUP", required=True)
@click.option("--workspace", envvar="LANDFALL_WORKSPACE", required=True)
@click.option(
    "--pipelines", type=click.Path(exists=True, file_okay=False, path_type=Path), default=ROOT / "pipelines"
)
@click.option("--image", help="Training image; without it Azure ML builds training_job/environment/Dockerfile.")
@click.option("--data-account", help="Storage account of the data; its datastore is registered.")
@click.option("--host-account", help="Storage account of the function app; its datastores are registered.")
@click.option("--max-nodes", type=click.IntRange(1, 100), default=4, show_default=True, help="Of new clusters.")
@click.option("--format", "output", type=click.Choice(["settings", "json"]), default="settings", show_default=True)
def publish(
    *,
    subscription: str,
    resource_group: str,
    workspace: str,
    pipelines: Path,
    image: str | None,
    data_account: str | None,
    host_account: str | None,
    max_nodes: int,
    output: str,
) -> None:
    """Register the training's environment and code, datastores and clusters in an Azure ML workspace.

    Prints the app settings that refer to them. What exists is left as it is; code is named by its digest, so the
    same code is not uploaded twice.
    """
    publication = Publication(
        root=ROOT,
        pipelines=pipelines.resolve(),
        identity=WorkspaceId(subscription=subscription, resource_group=resource_group, workspace=workspace),
        image=image,
        containers=Containers(data_account=data_account, host_account=host_account),
        clusters=clusters_of(pipelines, max_nodes=max_nodes),
    )
    settings = _publish(publication)
    if output == "json":
        click.echo(json.dumps(settings, indent=1))
    else:
        for name, value in settings.items():
            click.echo(f"{name}={value}")


def _publish(publication: Publication) -> dict[str, str]:
    try:
        workspace = AzureMlWorkspace.open(publication.identity)
        return assets.publish(publication, workspace, lambda line: click.echo(line, err=True))
    except AzureError as error:
        said = str(error).splitlines()[0] if str(error) else repr(error)
        raise CliError(f"Azure ML workspace {publication.identity.workspace}: {said}") from error


def clusters_of(pipelines: Path, *, max_nodes: int) -> list[Cluster]:
    """Return each cluster that a pipeline names, once, large enough for all of them.

    Raises PipelineError for a wrong file, CliError where two pipelines disagree about a cluster.
    """
    found: dict[str, Cluster] = {}
    for pipeline in load_pipelines(pipelines).values():
        train = pipeline.train
        known = found.get(train.compute)
        if known is not None and known.vm_size != train.vm_size:
            raise CliError(f"cluster {train.compute}: one pipeline says {known.vm_size}, another {train.vm_size}.")
        nodes = max(max_nodes, train.num_nodes, known.max_nodes if known else 0)
        found[train.compute] = Cluster(name=train.compute, vm_size=train.vm_size, max_nodes=nodes)
    return [found[name] for name in sorted(found)]
