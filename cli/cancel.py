"""``landfall cancel``."""

from __future__ import annotations

import json

import click

from cli.api_client import ApiClient
from cli.dataset_argument import RUN_ID
from cli.target import with_api


@click.command()
@click.argument("run_id", type=RUN_ID)
@click.option("--json", "as_json", is_flag=True, help="Print what the API answers.")
@with_api
def cancel(client: ApiClient, run_id: str, *, as_json: bool) -> None:
    """Cancel a run in whatever state it is. No attempt and no waiting follow-up starts by itself afterwards."""
    run = client.cancel(run_id)
    if as_json:
        click.echo(json.dumps(run, indent=2))
    elif run["state"] == "canceled":
        click.echo(f"{run['run_id']} is canceled.")
    else:
        click.echo(f"{run['run_id']} is being canceled. Follow it with: landfall run {run['run_id']}")
