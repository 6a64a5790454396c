"""Option sweeps on the command line: what `landfall submit --sweep` sends, and what it prints."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from cli.errors import CliError
from cli.files import read_at_most
from cli.options import RUN_ID, as_json_option, with_api
from cli.remote.api_client import ApiClient
from cli.screen import columns, show

MAX_FILE_BYTES = 1 << 20
MAX_COLUMNS = 8
"""Metrics of a comparison's table; --json has all of them."""
MAX_CELL_CHARS = 40


def read_value(text: str) -> Any:
    """Read numbers, true and false as JSON does, and leave anything else a text."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        parsed = text
    return parsed if isinstance(parsed, (int, bool)) or _is_finite(parsed) else text


def _is_finite(parsed: Any) -> bool:
    """Whether a value is a number that JSON can carry; Python's parser also takes NaN and 1e999."""
    return isinstance(parsed, float) and math.isfinite(parsed)


class SweepOption(click.ParamType[tuple[str, list[Any]]]):
    """``epochs=3,5`` becomes ``("epochs", [3, 5])``."""

    name = "key=value,value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, list[Any]]:
        """Split at the first ``=`` and at commas."""
        if isinstance(value, tuple):
            return value
        key, separator, text = str(value).partition("=")
        values = [part.strip() for part in text.split(",")]
        if not separator or not key or not all(values):
            self.fail(f"{value!r} is not KEY=VALUE,VALUE, such as learning_rate=0.1,0.03,0.01.", param, ctx)
        return key, [read_value(part) for part in values]


def sweep_members(
    grid: tuple[tuple[str, list[Any]], ...], sweep_file: Path | None, max_node_hours: float | None
) -> dict[str, Any]:
    """Return the members of a request that say what a sweep trains. Raises UsageError."""
    if max_node_hours is None:
        raise click.UsageError("a sweep needs --max-node-hours: the maximum node-hours of all its runs together.")
    if not math.isfinite(max_node_hours):
        raise click.UsageError(f"--max-node-hours {max_node_hours}: expected a number of hours, such as 6.")
    if sweep_file is None:
        names = [name for name, _ in grid]
        if repeated := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
            raise click.UsageError(f"--sweep {repeated[0]} is stated twice: list all its values in one.")
        return {"max_node_hours": max_node_hours, "grid": dict(grid)}
    if grid:
        raise click.UsageError("--sweep and --sweep-file cannot be combined: put all runs into the file.")
    try:
        runs = json.loads(read_at_most(sweep_file, MAX_FILE_BYTES, wanted="a JSON file with the options of each run"))
    except (ValueError, RecursionError) as error:
        raise CliError(f"{sweep_file} is not JSON: {error}") from error
    if not isinstance(runs, list) or not all(isinstance(run, dict) for run in runs):
        raise CliError(f'{sweep_file}: expected a list with the options of each run, such as [{{"epochs": 3}}]')
    try:
        json.dumps(runs, allow_nan=False, ensure_ascii=False).encode()
    except ValueError as error:
        raise CliError(
            f"{sweep_file}: contains NaN, a number that is too large or an incomplete character, which JSON does "
            f"not allow; correct the values"
        ) from error
    return {"max_node_hours": max_node_hours, "runs": runs}


def describe_sweep_request(sweep: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines that describe the option sweep that a request led to, which may have ended long before."""
    each = f"{sweep['num_nodes']} {'node' if sweep['num_nodes'] == 1 else 'nodes'} each"
    bound = f"at most {sweep['node_hours']:.4g} of {sweep['max_node_hours']:.4g} node-hours"
    name = sweep["sweep_id"]
    yield f"{name}: {sweep['state']}, {len(sweep['runs'])} runs with {each}, {bound}."
    if sweep["state"] != "running":
        yield f"No new run was started: {sweep['reason']}. To train again, add --force."
    elif sweep["metric"]:
        better = "highest" if sweep["higher_is_better"] else "lowest"
        yield f"The run with the {better} {sweep['metric']} is registered, if it meets the pipeline's requirements."
    yield f"To follow it: landfall compare {name}. To cancel it: landfall cancel {name}"


@click.command(epilog="Example: landfall compare sweep-digits-2026-11-20-0123456789ab")
@click.argument("runs", type=RUN_ID, nargs=-1, required=True, metavar="RUN|SWEEP...")
@as_json_option
@with_api
def compare(client: ApiClient, runs: tuple[str, ...], *, as_json: bool) -> None:
    """Compare runs side by side: data and options that differ, metrics, time and cost.

    For the id of an option sweep, show all its runs and the state of the sweep.
    """
    found = client.get("/api/compare", run=list(runs))
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    for name in runs:
        if name.startswith("sweep-"):
            show(describe_sweep(client.get(f"/api/sweeps/{quote(name, safe='')}")))
    show(describe_comparison(found, width=columns()))


def describe_sweep(sweep: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines that describe the state of an option sweep."""
    started = [run for run in sweep["runs"] if run["state"] is not None]
    yield (
        f"{sweep['sweep_id']}: {sweep['state']}, {len(started)} of {len(sweep['runs'])} runs started, "
        f"at most {sweep['node_hours']:.4g} node-hours"
    )
    if sweep["best"]:
        yield f"  best: {sweep['best']}, {sweep['reason']}"
    elif sweep["reason"]:
        yield f"  no model is registered: {sweep['reason']}"


def _with_interval(run: Mapping[str, Any], name: str) -> str:
    """Return a metric with its 95 % interval, where it is known."""
    bounds = run.get("intervals", {}).get(name, [])[1:]
    return f"{run['metrics'][name]:.6g}" + (" ({:.4g} to {:.4g})".format(*bounds) if bounds else "")


def describe_comparison(found: Mapping[str, Any], width: int | None = None) -> Iterator[str]:
    """Yield a table with a line for each run, and then which run each line is.

    ``width``: columns of a terminal. A table that is wider becomes a list.
    """
    options, metrics, runs = found["options"], found["metrics"][:MAX_COLUMNS], found["runs"]
    has_cost = any(run["cost"] is not None for run in runs)
    heads = ["run", "state", *options, *metrics, "time", "node-hours", *(["cost"] if has_cost else [])]
    rows = [heads]
    for number, run in enumerate(runs, start=1):
        cost = "" if run["cost"] is None else f"{run['cost']:.2f}"
        values = [run["options"].get(name, "") for name in options]
        values += [_with_interval(run, name) if name in run["metrics"] else "" for name in metrics]
        time = f"{run['trained_s'] / 60:.1f} min"
        row = [str(number), run["state"], *values, time, f"{run['node_hours']:.3g}", *([cost] if has_cost else [])]
        rows.append([cell[:MAX_CELL_CHARS] for cell in row])
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
    if width is not None and sum(widths) + 2 * (len(heads) - 1) > width:
        yield from _as_list(rows)
    else:
        for row in rows:
            yield "  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip()
    for number, run in enumerate(runs, start=1):
        model = f", model {run['model_name']} version {run['model_version']}" if run["model_name"] else ""
        yield f"{number}: {run['run_id']} ({run['dataset']}/{run['version']}, generation {run['generation']}){model}"
        if run["reason"]:
            yield f"   {run['reason']}"
    yield from found.get("notes", [])


def _as_list(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a table's rows below each other, each with its cells by name."""
    (_, *heads), *others = rows
    size = max(map(len, heads))
    for number, *cells in others:
        yield f"run {number}:"
        yield from (f"  {head.ljust(size)}  {cell}" for head, cell in zip(heads, cells, strict=True) if cell)
