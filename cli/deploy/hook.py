"""``landfall hook``, which azure.yaml calls."""

from __future__ import annotations

import os

import click
from azure.core.exceptions import AzureError

from cli import ROOT
from cli.deploy.after import await_health, examine_deployment, publish_assets, smoke_test
from cli.deploy.before import prepare
from cli.deploy.programs import AzdEnvironment
from cli.deploy.workspace import AzureMlWorkspace
from cli.errors import CliError


@click.command(epilog="Example: landfall hook preprovision")
@click.argument("step", type=click.Choice(["preprovision", "postprovision", "postdeploy"]))
def hook(step: str) -> None:
    """Run a step of `azd up`, with the values of azd's environment.

    preprovision checks tools, region and quota, and computes versions. postprovision builds the training's image and
    publishes code and environment. postdeploy waits until the function app is healthy and `landfall doctor` finds
    nothing wrong, then runs the smoke test. Each step can be repeated.
    """
    environment = AzdEnvironment(values=os.environ)
    pipelines = ROOT / "pipelines"
    try:
        if step == "preprovision":
            prepare(ROOT, pipelines, environment)
        elif step == "postprovision":
            publish_assets(ROOT, pipelines, environment, AzureMlWorkspace.open)
        else:
            await_health(environment)
            examine_deployment(environment, pipelines, AzureMlWorkspace.open)
            smoke_test(ROOT, environment)
    except AzureError as error:
        problem = str(error).splitlines()[0] if str(error) else repr(error)
        raise CliError(f"Azure ML: {problem}") from error
