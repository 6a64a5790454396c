"""``landfall models``, ``promote`` and ``register``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import click

from cli.errors import CliError
from cli.options import RUN_ID, as_json_option, path_segment, with_api
from cli.remote.api_client import ApiClient, shown_time
from cli.screen import answer

_NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,254}):([A-Za-z0-9][A-Za-z0-9_.-]{0,254})", re.ASCII)


class ModelVersionArgument(click.ParamType[tuple[str, str]]):
    """``digits-cnn:202611201200003818`` becomes ``("digits-cnn", "202611201200003818")``."""

    name = "model:version"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Split and check."""
        if isinstance(value, tuple):
            return value
        found = _NAMED.fullmatch(str(value))
        if found is None:
            self.fail(
                f"{value!r} is not MODEL:VERSION, such as digits-cnn:202611201200003818; see `landfall models`.",
                param,
                ctx,
            )
        return found[1], found[2]


@click.command(epilog="Example: landfall models digits-cnn")
@click.argument("name", metavar="[MODEL]", required=False)
@as_json_option
@with_api
def models(client: ApiClient, name: str | None, *, as_json: bool) -> None:
    """List registered models, the newest version first, or show one of them."""
    if name is None:
        listed = list(client.pages("/api/models", "models", limit=1000))
        found: dict[str, Any] = {"models": listed}
    else:
        found = client.get(f"/api/models/{path_segment(name, 'model')}")
        listed = [found]
    answer(found, describe_models(listed), as_json=as_json)


def describe_models(listed: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each model and each of its versions, or one that says that no model is registered."""
    if not listed:
        yield "No model is registered yet. `landfall runs` says how the runs ended."
    for model in listed:
        current = model.get("current")
        yield f"{model['name']}: " + (f"version {current} is current" if current else "no version is current")
        for each in model["versions"]:
            metrics = "  ".join(f"{name} {value:.4g}" for name, value in sorted(each["metrics"].items()))
            yield f"  version {each['version']}, registered {shown_time(each['registered_at'])}: {metrics}"
            if words := ((each.get("evidence") or {}).get("comparison") or {}).get("words"):
                yield f"    {words}"
            yield f"    trained on {each['dataset']}/{each['dataset_version']} by {each['run_id']}"


@click.command(epilog="Example: landfall promote digits-cnn:202611201200003818")
@click.argument("target", type=ModelVersionArgument(), metavar="MODEL:VERSION")
@as_json_option
@with_api
def promote(client: ApiClient, target: tuple[str, str], *, as_json: bool) -> None:
    """Make a registered version of a model the current one, which serving follows."""
    name, version = (quote(part, safe="") for part in target)
    current = client.post(f"/api/models/{name}/versions/{version}/promote")
    if as_json:
        click.echo(json.dumps(current, indent=2))
        return
    instead = f" instead of version {current['previous']}" if current["previous"] else ""
    click.echo(f"Version {current['version']} of model {current['name']} is the current one{instead}.")


@click.command(epilog="Example: landfall register landfall-digits-v1-1f3a9c2b7d5e-a1 --why relabelled")
@click.argument("run_id", type=RUN_ID, metavar="RUN")
@click.option("--why", required=True, metavar="TEXT", help="Reason, which becomes part of the version's evidence.")
@click.option("--dry-run", is_flag=True, help="Show what would be registered, and change nothing.")
@click.option("--confirmed", is_flag=True, help="Register without asking for confirmation (default: ask).")
@as_json_option
@with_api
def register(client: ApiClient, run_id: str, *, why: str, dry_run: bool, confirmed: bool, as_json: bool) -> None:
    """Register the model of a completed run that the gate did not register.

    It first shows what it will register. The version's evidence records that a person overrode the gate, and the
    reason. If the run already has a version, nothing changes. The version is not promoted.
    """
    if not why.strip():
        raise click.UsageError("--why is empty: state the reason.")
    planned = client.register(run_id, why, dry_run=True)
    if dry_run or planned["is_registered"]:
        click.echo(json.dumps(planned, indent=2) if as_json else "\n".join(planned["steps"]))
        return
    if not confirmed:
        click.echo("\n".join(planned["steps"]), err=True)
        if not click.confirm("Register it?", err=True):
            raise CliError("Nothing was registered.")
    found = client.register(run_id, why)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    named = f"{found['model_name']}:{found['model_version']}"
    click.echo(f"{named} is registered. To make it the current version: landfall promote {named}")
