"""``landfall runs``, ``run``, ``submit`` and ``cancel``."""

from __future__ import annotations

import difflib
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from cli.options import (
    DATASET_VERSION,
    RUN_ID,
    TRAINABLE,
    as_json_option,
    limit_option,
    running_twin_of_this_clone,
    with_api,
)
from cli.remote.api_client import ApiClient, ApiError, shown_time
from cli.remote.plan import describe_plan, described_outcome
from cli.remote.sweeps import SweepOption, describe_sweep_request, read_value, sweep_members
from cli.screen import answer, show
from shared.progress import RankPlace

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

HOURS = {"h": 1, "d": 24, "w": 168}
MAX_HOURS = 366 * 24
_SPAN = re.compile(r"(\d{1,6})([hdw])", re.ASCII)


class StateOption(click.ParamType[str]):
    """A state of a run. The states are imported only where one is stated or completed."""

    name = "choice"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse what is no state, with the nearest one."""
        states = self._states()
        if value not in states:
            near = difflib.get_close_matches(str(value), states, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(states)}."
            self.fail(f"{value!r} is not a state of a run; {hint}", param, ctx)
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Offer the states."""
        del ctx, param
        from click.shell_completion import CompletionItem

        return [CompletionItem(state) for state in self._states() if state.startswith(incomplete)]

    @staticmethod
    def _states() -> list[str]:
        from function_app.domain.run_states import RunState

        return [str(state) for state in RunState]


class SpanOption(click.ParamType[int]):
    """``7d`` becomes 168, the hours."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read a number of hours, days or weeks, at most a year."""
        found = _SPAN.fullmatch(str(value))
        hours = int(found[1]) * HOURS[found[2]] if found else 0
        if not 0 < hours <= MAX_HOURS:
            self.fail(f"{value!r} is not a time up to a year, such as 24h, 7d or 2w.", param, ctx)
        return hours


@click.command(epilog="Example: landfall runs --since 7d")
@limit_option
@click.option("--dataset", metavar="NAME", help="List only runs of this dataset (default: all datasets).")
@click.option(
    "--state",
    type=StateOption(),
    metavar="STATE",
    help="List only runs in this state, such as failed (default: all).",
)
@click.option("--after", type=RUN_ID, metavar="RUN", help="List only runs older than this one (default: the newest).")
@click.option(
    "--since",
    type=SpanOption(),
    help=(
        "Time span until now, such as 24h, 7d or 2w, to list node-hours and cost of its runs (default: list runs by "
        "age)."
    ),
)
@as_json_option
@with_api
def runs(client: ApiClient, /, limit: int, *, since: int | None, as_json: bool, **filters: str | None) -> None:
    """List runs, the newest first; with --since, those that had nodes in that time, and their total cost."""
    if since is not None:
        if filters["state"] or filters["after"]:
            raise click.UsageError("--since cannot be combined with --state or --after.")
        dataset = filters["dataset"]
        spent = client.get("/api/spending", hours=since, **({"dataset": dataset} if dataset else {}))
        answer(spent, describe_spending(spent, limit), as_json=as_json)
        return
    found = client.get("/api/runs", limit=limit, **{name: value for name, value in filters.items() if value})
    answer(found, listing(found, filters), as_json=as_json)


def describe_spending(spent: Mapping[str, Any], limit: int) -> Iterator[str]:
    """Yield a line for each run with nodes in a span of time, at most ``limit``, for each dataset, and the total."""
    currency = spent["currency"]
    for run in spent["runs"][:limit]:
        yield (f"{shown_time(run['created_at'])}  {run['state']:<14}  {_spent(run, currency):<32}  {run['run_id']}")
    if spent["num_runs"] > limit:
        yield f"… {spent['num_runs'] - limit:,} older ones: add --limit"
    if len(spent["datasets"]) > 1:
        for row in spent["datasets"]:
            yield f"{row['dataset']}: {_spent(row, currency)}, runs: {row['num_runs']:,}"
    span = f"from {shown_time(spent['since'])} to {shown_time(spent['until'])}"
    if not spent["num_runs"]:
        yield f"No run had nodes {span}: no node-hours, no cost."
        return
    yield f"Together: {_spent(spent, currency)}, runs: {spent['num_runs']:,}, {span}"
    if spent["cost"] is None:
        yield "The cost is unknown: neither clusters.yaml nor prices.yaml has price_per_node_hour for these clusters."
    elif (unpriced := f"{spent['unpriced_node_hours']:.2f}") != "0.00":
        yield f"Without {unpriced} node-hours of clusters that have no price."
    if not spent["is_whole"]:
        yield "There are too many runs: older ones are left out."


def _spent(row: Mapping[str, Any], currency: str) -> str:
    cost = "" if row["cost"] is None else f", cost {row['cost']:.2f} {currency}".rstrip()
    return f"{row['node_hours']:.2f} node-hours{cost}"


def listing(found: Mapping[str, Any], filters: Mapping[str, str | None]) -> Iterator[str]:
    """Yield a line for each run, or one line that says that there is none; then how to see older ones."""
    if not found["runs"]:
        asked = {"dataset": "of dataset", "state": "in state", "after": "older than"}
        yield (
            " ".join(["There are no runs", *(f"{asked[name]} {value}" for name, value in filters.items() if value)])
            + "."
        )
    for each in found["runs"]:
        yield f"{shown_time(each['created_at'])}  {each['state']:<14}  {each['run_id']}"
    if found.get("next"):
        yield f"There may be older ones: add --after {found['runs'][-1]['run_id']}"


@click.command(epilog="Example: landfall run landfall-digits-2026-11-20-1f3a9c2b7d5e-a1")
@click.argument("run_id", type=RUN_ID, metavar="RUN")
@as_json_option
@with_api
def run(client: ApiClient, run_id: str, *, as_json: bool) -> None:
    """Show one run: its state and the reason, where its ranks ran, its model and files, and who was notified."""
    found = client.run(run_id)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    twin = running_twin_of_this_clone()
    is_local = twin is not None and twin.functions_url == client.url
    files = files_of(found, twin.host_connection if twin and is_local else None)
    described = [*describe_run(found), *files]
    ranks = describe_ranks(_ranks(client, run_id)) if found["submitted_at"] else ()
    show([*described, *ranks])


def _ranks(client: ApiClient, run_id: str) -> dict[str, Any]:
    """Return where the first ranks of a run ran, or why that is not known: the rest is shown nevertheless."""
    try:
        return client.get(f"/api/runs/{quote(run_id, safe='')}/ranks")
    except ApiError as error:
        return {"places": [], "problem": f"where its ranks ran is not known: {error}", "next": None}


def describe_ranks(ranks: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each rank: its host, and the ranks that it connected to."""
    yield from (f"  {RankPlace(**place).in_words()}" for place in ranks["places"])
    if ranks["problem"]:
        yield f"  {ranks['problem']}"
    if ranks["next"] is not None:
        others = f"{ranks['next']} to {ranks['num_ranks'] - 1}"
        yield f"  ranks {others}: landfall logs {ranks['run_id']} --rank N says where each ran"


def describe_run(run: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines that describe a run, as the API returns it."""
    yield f"{run['run_id']}: {run['state']} since {shown_time(run['state_since'])}"
    yield f"  dataset version: {run['dataset']}/{run['version']} (generation {run['generation']})"
    if run.get("waiting"):
        yield f"  {run['waiting']}"
    yield f"  attempt: {run['attempt']}"
    if run.get("sweep_id"):
        yield f"  run {run['sweep_number']} of option sweep {run['sweep_id']}"
    if run.get("failure_class"):
        yield f"  failure: {run['failure_class']}, remedy: {run['remedy']}"
    if run.get("next_run_id"):
        yield f"  continued by: {run['next_run_id']}"
    if run["reason"]:
        yield f"  reason: {run['reason']}"
    if run["model_name"]:
        yield f"  model: {run['model_name']} version {run['model_version']}"
    yield from (f"  {line}" for line in describe_evidence(run))
    for name, value in sorted(run["metrics"].items()):
        low_high = run.get("evidence", {}).get("intervals", {}).get(name, [])[1:]
        yield f"  {name}: {value:.6g}" + (", 95 % between {:.4g} and {:.4g}".format(*low_high) if low_high else "")
    yield from _afterwards(run)


def _afterwards(run: Mapping[str, Any]) -> Iterator[str]:
    if run.get("prediction"):
        yield f"  {described_outcome(run['prediction'])}"
    for sent in run["notifications"] or []:
        yield f"  notification ({sent['outcome']}) to {sent['recipient']}: {sent['state']}"
    if run["log_tail"]:
        yield "  end of the log:"
        yield from (f"    {line}" for line in run["log_tail"].splitlines())


def describe_evidence(run: Mapping[str, Any]) -> Iterator[str]:
    """Yield the evidence on which the registration was decided."""
    evidence = run.get("evidence", {})
    if override := evidence.get("override"):
        yield f"{override['by']} overrode the gate: {override['why']}"
    if run["state"] == "registered" and evidence.get("comparison"):
        yield f"evidence: {evidence['comparison']['words']}"
    if evidence.get("promoted"):
        yield "promoted: it became the current version"
    elif "promotion" in evidence:
        yield str(evidence["promotion"])


_OUTPUT = re.compile(
    r"azureml://subscriptions/(?P<subscription>[^/]+)/resourcegroups/(?P<group>[^/]+)/workspaces/(?P<workspace>[^/]+)"
    r"/datastores/(?P<datastore>[^/]+)/paths/(?P<path>.+)"
)


def files_of(run: Mapping[str, Any], connection: str | None) -> Iterator[str]:
    """Yield where a submitted run's report, model, checkpoints and logs are, and the commands that fetch them.

    ``connection`` is the storage account of the local twin, whose jobs `az ml` cannot see; None for Azure ML.
    """
    from function_app.domain.run_states import SETTLED, RunState

    found = {name: match for name, uri in run["outputs"].items() if (match := _OUTPUT.fullmatch(uri))}
    if run["submitted_at"] is None or not found:
        return
    yield "  files:"
    for name, match in sorted(found.items()):
        yield f"    {name + ':':<13}{match['path']} (datastore {match['datastore']})"
    yield f"    {'logs:':<13}user_logs of job {run['run_id']}"
    has_ended = run["state"] in {*SETTLED, RunState.COMPLETED}  # `az ml job download` refuses any other job
    yield "  to fetch them:" if has_ended or connection is not None else "  to fetch them once the job has ended:"
    one = next(iter(found.values()))
    job, target = run["run_id"], ["--download-path", run["run_id"]]
    workspace = ["--subscription", one["subscription"], "--resource-group", one["group"]]
    workspace += ["--workspace-name", one["workspace"]]
    if connection is not None:
        connection = ";".join(
            p for p in connection.split(";") if not p.startswith(("QueueEndpoint", "TableEndpoint"))
        )
        folder = f"{run['dataset']}/{run['version']}/{run['logical_run']}"
        for source, pattern in (("runs", f"{folder}/*"), ("azureml", f"ExperimentRun/dcid.{job}/*")):
            words = [source, "--pattern", pattern, "--connection-string", connection]
            yield _command("az storage blob download-batch --overwrite true --destination . --source", *words)
        return
    yield _command("az ml job download --all --name", job, *target, *workspace)
    if run["model_name"]:
        model = [run["model_name"], "--version", run["model_version"]]
        yield _command("az ml model download --name", *model, *target, *workspace)


def _command(start: str, *words: str) -> str:
    return f"    {start} {shlex.join(words)}"


class OverrideOption(click.ParamType[tuple[str, Any]]):
    """``epochs=3`` becomes ``("epochs", 3)``."""

    name = "key=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Any]:
        """Split at the first ``=``; read numbers, true and false as JSON does, and leave anything else a text."""
        if isinstance(value, tuple):
            return value
        key, separator, text = str(value).partition("=")
        if not separator or not key:
            self.fail(f"{value!r} is not KEY=VALUE, such as epochs=3.", param, ctx)
        return key, read_value(text)


def _by_name(_: click.Context, __: click.Parameter, overrides: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    """Return the overrides by the names of their options. Raises UsageError for a name that is stated twice."""
    names = [name for name, _ in overrides]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise click.UsageError(f"--set {repeated[0]} is stated twice: state one value.")
    return dict(overrides)


@click.command(epilog="Example: landfall submit digits/2026-11-20 --set epochs=3")
@click.argument("target", type=TRAINABLE, metavar="DATASET[/VERSION]")
@click.option(
    "--set",
    "overrides",
    type=OverrideOption(),
    multiple=True,
    callback=_by_name,
    help="Override a training option within the limits of the pipeline (default: the pipeline's own). Repeatable.",
)
@click.option(
    "--force", is_flag=True, help="Train even if the data was already trained on, or the script has errors."
)
@click.option(
    "--sweep",
    "grid",
    type=SweepOption(),
    multiple=True,
    help=(
        "Train once with each of these values of an option, and register the best model (default: one run). "
        "Repeatable: trains with each combination."
    ),
)
@click.option(
    "--sweep-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Train once with each set of options in a JSON file, a list of objects, instead of --sweep (default: none).",
)
@click.option(
    "--max-node-hours",
    type=click.FloatRange(min=0, min_open=True),
    metavar="HOURS",
    help=(
        "Maximum node-hours of all runs of a sweep together: runs times nodes times time limit (required with a "
        "sweep)."
    ),
)
@click.option(
    "--num-nodes", type=click.IntRange(min=1), metavar="N", help="Nodes of each run of a sweep (default: 1)."
)
@click.option("--dry-run", is_flag=True, help="Show what would be submitted, as `landfall plan`, and change nothing.")
@as_json_option
@with_api
def submit(
    client: ApiClient,
    target: tuple[str, str | None],
    overrides: dict[str, Any],
    *,
    force: bool,
    grid: tuple[tuple[str, list[Any]], ...],
    sweep_file: Path | None,
    max_node_hours: float | None,
    num_nodes: int | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Request a training run on a complete dataset version. For synthetic data, pass DATASET without a version.

    Without --force, repeating an earlier request returns the run that it started.

    With --sweep or --sweep-file, it requests an option sweep: several runs, of which the best model is registered.
    """
    if dry_run and (grid or sweep_file):
        raise click.UsageError("--dry-run is for one run: leave --sweep and --sweep-file out.")
    if grid or sweep_file:
        asked = {"overrides": overrides, "force": force, "num_nodes": num_nodes or 1}
        asked |= sweep_members(grid, sweep_file, max_node_hours)
        sweep = client.submit_sweep(*target, asked)
        answer(sweep, describe_sweep_request(sweep), as_json=as_json)
        return
    if max_node_hours or num_nodes:
        raise click.UsageError("--max-node-hours and --num-nodes belong to a sweep: add --sweep or --sweep-file.")
    if dry_run:
        plan = client.submit(*target, overrides, force=force, dry_run=True)
        answer(plan, describe_plan(plan), as_json=as_json)
        return
    run = client.submit(*target, overrides, force=force)
    lines = describe_request(run, "/".join(filter(None, target)))
    answer(run, lines, as_json=as_json)


def describe_request(run: Mapping[str, Any], target: str) -> Iterator[str]:
    """Yield the lines that describe the run that a request led to, which may have ended long before."""
    from function_app.domain.run_states import SETTLED

    if run["state"] in SETTLED:
        yield f"{run['run_id']} has already ended: {run['state']}. No new run was started."
        yield f"To see it: landfall run {run['run_id']}"
        yield f"To train again: landfall submit {target} --force"
    else:
        yield f"{run['run_id']}: {run['state']}. To follow it: landfall run {run['run_id']}"


@click.command(epilog="Example: landfall release digits/2026-11-20")
@click.argument("target", type=DATASET_VERSION, metavar="DATASET/VERSION")
@as_json_option
@with_api
def release(client: ApiClient, target: tuple[str, str], *, as_json: bool) -> None:
    """Lift the hold on a version whose data made a run fail, so that runs on it can be requested again."""
    name = "/".join(target)
    answer = client.post(f"/api/datasets/{quote(target[0], safe='')}/{quote(target[1], safe='')}/release")
    if as_json:
        click.echo(json.dumps(answer, indent=2))
    elif answer["released"]:
        click.echo(f"{name} is no longer on hold. It was, because {answer['reason']}.")
        click.echo(f"To train on it: landfall submit {name}")
    else:
        click.echo(f"{name} is not on hold.")


@click.command(epilog="Example: landfall cancel landfall-digits-2026-11-20-1f3a9c2b7d5e-a1")
@click.argument("run_id", type=RUN_ID, metavar="RUN|SWEEP")
@as_json_option
@with_api
def cancel(client: ApiClient, run_id: str, *, as_json: bool) -> None:
    """Cancel a run in any state. No further attempt of it starts, and no waiting run of the same version.

    Other waiting versions are still trained, unless the pipeline has `when_busy: latest`. Canceling an option sweep
    cancels all its runs, and no model is registered.
    """
    if run_id.startswith("sweep-"):
        sweep = client.post(f"/api/sweeps/{quote(run_id, safe='')}/cancel")
        click.echo(json.dumps(sweep, indent=2) if as_json else f"{run_id} is canceled, and registers no model.")
        return
    run = client.cancel(run_id)
    if as_json:
        click.echo(json.dumps(run, indent=2))
    elif run["state"] == "canceled":
        click.echo(f"{run['run_id']} is canceled.")
    else:
        click.echo(f"{run['run_id']} is being canceled. To follow it: landfall run {run['run_id']}")
