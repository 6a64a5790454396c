"""``landfall check``. It imports no Azure SDK."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli import PIPELINES
from cli.files import from_here
from shared.safe_text import one_line

if TYPE_CHECKING:
    from function_app.config.pipeline_files import PipelineFolder
    from function_app.config.pipelines import Pipeline

WRONG = 1
"""Exit status if a file is wrong; click's own for wrong usage is 2."""
SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True, kw_only=True)
class Checked:
    """One file, and what is wrong with it."""

    path: Path
    problems: tuple[str, ...]
    """Each begins with the name of the file."""
    summary: str = ""
    """What the pipeline does; empty if it has problems."""


@click.command(epilog="Example: landfall check pipelines/digits.yaml")
@click.argument("files", nargs=-1, metavar="[FILE|FOLDER ...]", type=click.Path(path_type=Path))
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object per file, each on its own line.")
def check(files: tuple[Path, ...], *, is_json: bool) -> None:
    """Check pipeline files before they are deployed, with the same checks as the function app.

    Without an argument, it checks the folder `pipelines`. It also reads the clusters.yaml in the same folder, and
    checks a training script of your own as `landfall lint` does. Each message names the file, the field and its line,
    the problem and the fix. No data is read: to check shards, use `landfall validate --pipeline FILE`.

    Exit status: 0 every file is valid; 1 a file is not valid; 2 wrong usage.
    """
    checked = [one for path in files or (from_here(PIPELINES),) for one in checked_files(path)]
    for one in checked:
        click.echo(as_json(one) if is_json else as_text(one))
    num_wrong = sum(bool(one.problems) for one in checked)
    if not is_json and len(checked) > 1:
        click.echo(f"{len(checked) - num_wrong} of {len(checked)} files can be used")
    if num_wrong:
        raise click.exceptions.Exit(WRONG)


def checked_files(path: Path) -> Iterator[Checked]:
    """Yield the pipeline files of an argument.

    Raises UsageError if it is neither a YAML file nor a folder with one.
    """
    name = one_line(str(path))
    if not path.exists():
        raise click.UsageError(f"{name}: there is no such file or folder.")
    if not path.is_dir() and not path.is_file():
        raise click.UsageError(f"{name}: is a pipe or a device, not a file or a folder.")
    if path.is_file() and path.suffix not in SUFFIXES:
        raise click.UsageError(f"{name}: the name of a pipeline file ends in .yaml or .yml.")
    folder = path if path.is_dir() else path.parent
    from function_app.config.pipeline_files import NO_PIPELINES, read_pipelines
    from function_app.domain.errors import PipelineError

    try:
        read = read_pipelines(folder)
        paths = sorted(one for one in folder.iterdir() if one.suffix in SUFFIXES) if path.is_dir() else [path]
    except PipelineError as error:
        raise click.UsageError(str(error)) from error
    except OSError as error:
        raise click.UsageError(f"{name}: cannot be opened: {error.strerror}.") from error
    if not [one for one in paths if one.name not in NO_PIPELINES or path.is_file()]:
        raise click.UsageError(f"{name}: has no pipeline file; `landfall init` writes one for your data.")
    problems = list(dict.fromkeys(problem for found in read.out_of_service.values() for problem in found))
    problems += read.plan_facts.problems
    for one in paths:
        yield _judged(one, problems, read)


def _judged(path: Path, problems: Iterable[str], read: PipelineFolder) -> Checked:
    """Return one file with its problems; a file whose clusters.yaml is wrong cannot be used either."""
    from function_app.config.clusters import CLUSTERS_FILE

    beginnings = tuple(f"{name}:" for name in dict.fromkeys((path.name, CLUSTERS_FILE)))
    own = tuple(problem for problem in problems if problem.startswith(beginnings))
    dataset = next((dataset for dataset, file in read.files.items() if file == path.name), "")
    pipeline = read.pipelines.get(dataset)
    if own or pipeline is None:
        return Checked(path=path, problems=own)
    return Checked(path=path, problems=tuple(_script_errors(pipeline, path)), summary=_summary(pipeline))


def _script_errors(pipeline: Pipeline, path: Path) -> Iterator[str]:
    """Yield the lint errors of the user's training script; a job whose script has errors is not submitted."""
    from function_app.config.pipelines import is_own_script

    if is_own_script(pipeline.train.script):
        from function_app.config.pipeline_files import read_modules, read_script
        from function_app.runs.mistakes import check_script

        read, modules = functools.partial(read_script, path.parent), functools.partial(read_modules, path.parent)
        found = check_script(pipeline, read, modules)
        yield from (f"{path.name}: train.script: {error}" for error in found.errors)


def _summary(pipeline: Pipeline) -> str:
    from function_app.config.pipelines import processes_under

    machines, train = pipeline.machines, pipeline.train
    data = pipeline.data.format if pipeline.data.is_synthetic else f"splits {', '.join(pipeline.data.splits)}"
    model = f"registers {pipeline.register_.model}" if pipeline.register_ else "registers no model"
    processes = processes_under(train.distribution, machines)
    ranks = f"{train.num_nodes} x {processes} processes on {machines.cluster} ({machines.vm_size})"
    return f"dataset {pipeline.dataset}, {data}; {ranks}; {model}"


def as_json(checked: Checked) -> str:
    """Return one line for one file."""
    verdict = "wrong" if checked.problems else "usable"
    return json.dumps({"file": str(checked.path), "verdict": verdict, "problems": list(checked.problems)})


def as_text(checked: Checked) -> str:
    """Return the lines for one file: the verdict, then the problems."""
    name = one_line(str(checked.path))
    if checked.problems:
        return "\n".join([f"WRONG   {name}", *(f"  {one_line(problem)}" for problem in checked.problems)])
    return f"usable  {name}{f'  ({one_line(checked.summary)})' if checked.summary else ''}"
