"""Option sweeps on the command line: what `landfall submit --sweep` sends, and what it prints."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from cli.errors import CliError
from cli.files import read_at_most

MAX_FILE_BYTES = 1 << 20


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
        raise click.UsageError("a sweep needs --max-node-hours: what its runs may take together.")
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
    yield f"To follow it: landfall why {name}. To cancel it: landfall cancel {name}"
