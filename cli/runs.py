"""``landfall runs`` and ``landfall run``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click
import yaml

from cli.api_client import ApiClient
from cli.options import RUN_ID, TRAINABLE, with_api
from function_app.domain.run_states import SETTLED


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


class OverrideOption(click.ParamType[tuple[str, Any]]):
    """``epochs=3`` becomes ``("epochs", 3)``."""

    name = "key=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Any]:
        """Split at the first ``=``; numbers and booleans are read as YAML reads them."""
        if isinstance(value, tuple):
            return value
        key, separator, text = str(value).partition("=")
        if not separator or not key:
            self.fail(f"expected key=value, such as epochs=3, was {value!r}", param, ctx)
        try:
            parsed = yaml.safe_load(text)
        except yaml.YAMLError:
            parsed = text
        return key, parsed if isinstance(parsed, (int, float, bool)) else text


@click.command()
@click.argument("target", type=TRAINABLE, metavar="DATASET[/VERSION]")
@click.option("--set", "overrides", type=OverrideOption(), multiple=True, help="An option of the training, within "
              "the limits of the pipeline; may be repeated.")  # fmt: skip
@click.option("--force", is_flag=True, help="Train again on purpose, whatever was trained "
              "on it before, and with a script that has errors.")  # fmt: skip
@with_api
def submit(
    client: ApiClient, target: tuple[str, str | None], overrides: tuple[tuple[str, Any], ...], *, force: bool
) -> None:
    """Train on a dataset version that is whole, or on synthetic data: DATASET alone."""
    run = client.submit(*target, dict(overrides), force=force)
    click.echo("\n".join(describe_request(run, "/".join(filter(None, target)))))


def describe_request(run: Mapping[str, Any], target: str) -> Iterator[str]:
    """Yield the lines that tell of the run that a request led to, which may have ended long before."""
    if run["state"] in SETTLED:
        yield f"{run['run_id']} has ended before: {run['state']}. Nothing new starts."
        yield f"See: landfall run {run['run_id']}. To train again: landfall submit {target} --force"
    else:
        yield f"{run['run_id']}: {run['state']}. Follow it with: landfall run {run['run_id']}"


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
