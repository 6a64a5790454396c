"""``landfall runs`` and ``landfall run``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from cli.api_client import ApiClient
from cli.dataset_argument import RUN_ID
from cli.target import with_api


@click.command()
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True)
@click.option("--dataset", help="Only runs of this dataset.")
@click.option("--json", "as_json", is_flag=True, help="Print what the API answers.")
@with_api
def runs(client: ApiClient, limit: int, dataset: str | None, *, as_json: bool) -> None:
    """List the newest runs."""
    filters: dict[str, str | int] = {"limit": limit} | ({"dataset": dataset} if dataset else {})
    found = client.runs(**filters)
    if as_json:
        click.echo(json.dumps({"runs": found}, indent=2))
        return
    for line in listing(found, dataset):
        click.echo(line)


def listing(found: Sequence[Mapping[str, Any]], dataset: str | None) -> Iterator[str]:
    """Yield a line for each run, or one that says of what there is none."""
    if not found:
        yield f"There are no runs{f' of dataset {dataset}' if dataset else ''} yet."
    for each in found:
        yield f"{each['created_at'][:19]}  {each['state']:<14}  {each['run_id']}"


@click.command()
@click.argument("run_id", type=RUN_ID)
@click.option("--json", "as_json", is_flag=True, help="Print what the API answers.")
@with_api
def run(client: ApiClient, run_id: str, *, as_json: bool) -> None:
    """Show one run: its state, why, its model, and who was told."""
    found = client.run(run_id)
    click.echo(json.dumps(found, indent=2) if as_json else "\n".join(describe(found)))


def describe(run: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines that describe a run as the HTTP API gives it."""
    yield f"{run['run_id']}: {run['state']} since {run['state_since']}"
    yield f"  of {run['dataset']}/{run['version']} (generation {run['generation']}), attempt {run['attempt']}"
    if run.get("failure_class"):
        yield f"  failed: {run['failure_class']}, decided: {run['remedy']}"
    if run.get("next_run_id"):
        yield f"  continued by: {run['next_run_id']}"
    if run["reason"]:
        yield f"  reason: {run['reason']}"
    if run["model_name"]:
        yield f"  model: {run['model_name']} version {run['model_version']}"
    for name, value in sorted(run["metrics"].items()):
        yield f"  {name}: {value:.6g}"
    for told in run["notifications"] or []:
        yield f"  {told['recipient']} about {told['outcome']}: {told['state']}"
    if run["log_tail"]:
        yield "  the end of the log:"
        yield from (f"    {line}" for line in run["log_tail"].splitlines())
