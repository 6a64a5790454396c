"""``landfall init``. It imports the Azure SDK only for URLs."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import click

from cli import PIPELINES
from cli.errors import CliError
from cli.files import from_here, read_at_most, write_new
from cli.init.blob_folders import is_folder, look_into
from cli.init.files import Files, find_files
from cli.init.proposal import Ask, Facts, Proposal
from cli.init.sampling import Looked, Sample, format_of, read_sample, stated_classes
from cli.validate.inputs import EMULATORS, ShardInput, find_counts, open_url
from shard_validation import MAX_COUNTS_BYTES, CountsError, LocalFileSource, ShardSource, SourceError, read_counts
from shared.safe_text import one_line, shown
from shared.shard_names import DATASET_MEANING, DATASET_PATTERN
from shared.source_names import DATASET_FILE, MAX_FILE_BYTES


def checked_dataset(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Return the name of a dataset. Raises click.BadParameter for one that is malformed."""
    if value is not None and DATASET_PATTERN.fullmatch(value) is None:
        raise click.BadParameter(f"{value!r:.100} is malformed: a dataset is {DATASET_MEANING}.")
    return value


dataset_option = click.option(
    "--dataset",
    callback=checked_dataset,
    metavar="NAME",
    help="Name of the dataset and the pipeline (default: the name of the folder or file).",
)
target_option = click.option(
    "--to",
    "target",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Pipeline file to write, in a folder with a clusters.yaml (default: pipelines/NAME.yaml).",
)
EXISTS = "Remove it, or pass another file to --to."


@click.command(epilog="Example: landfall init shards --dataset photos")
@click.argument("shards", nargs=-1, metavar="[PATH|URL ...]")
@dataset_option
@target_option
@click.option(
    "--cluster",
    metavar="NAME",
    help="Cluster of clusters.yaml to train on (default: the first one; on a terminal, you are asked).",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object with the file and what is left to check."
)
def init(
    shards: tuple[str, ...], dataset: str | None, target: Path | None, cluster: str | None, *, as_json: bool
) -> None:
    """Write a pipeline file for a dataset by sampling a few of its shards.

    PATH is a file or a folder of shards (default: the current folder). URL is the URL of a blob, or of a folder in a
    storage account; a folder's URL ends with /, such as https://NAME.blob.core.windows.net/datasets/photos/v1/. Files
    may have any names and be in subfolders, as Spark, Dask and pandas write them: the command then proposes the
    `data.layout`. Comments in the file say where each value comes from. On a terminal, the command asks for values
    that the data does not show; otherwise they are marked with CHECK. An existing file is not overwritten. `landfall
    pack` does the same as its last step.
    """
    written = write_pipeline(shards, dataset or _name_of(shards), target, cluster)
    if as_json:
        click.echo(json.dumps({"file": str(written.file), "check": list(written.marks)}))
    else:
        report(written, shards)


@dataclass(frozen=True, kw_only=True)
class Written:
    """A pipeline file with what is left to check in it."""

    file: Path
    marks: Sequence[str]
    is_new: bool
    """Whether the file was written; False if it existed with the same content."""


def write_pipeline(
    shards: Sequence[str],
    dataset: str,
    target: Path | None,
    cluster: str | None = None,
    *,
    otherwise: str = EXISTS,
) -> Written:
    """Write a pipeline file for shards; a file with the same content is kept.

    Raises CliError if the file exists with other content (``otherwise`` says what to do then), and click.UsageError
    if there is no shard.
    """
    file = _pipeline_file(target, dataset)
    is_there = file.is_file()
    ask = _without_answer if is_there else _ask
    with tempfile.TemporaryDirectory() as beside:
        folders = [argument for argument in shards if is_folder(argument)]
        local = [*(argument for argument in shards or (".",) if argument not in folders), *([beside] * bool(folders))]
        files = find_files(local, [blob for url in folders for blob in look_into(url, Path(beside))])
        proposal = Proposal(facts=_facts(dataset, files, local, machines_of(file.parent, cluster, ask)), ask=ask)
    text = proposal.text()
    is_same = is_there and read_at_most(file, MAX_FILE_BYTES, wanted="a pipeline file") == text.encode()
    if not is_same:
        write_new(file, text, otherwise=otherwise)
    return Written(file=file, marks=tuple(proposal.marks), is_new=not is_same)


def new_pipeline_file(target: Path | None, dataset: str) -> Path:
    """Return the file to write. Raises CliError if it exists, or its folder does not."""
    file = _pipeline_file(target, dataset)
    if file.exists():
        raise CliError(f"{one_line(str(file))}: exists already. {EXISTS}")
    return file


def _pipeline_file(target: Path | None, dataset: str) -> Path:
    file = target or PIPELINES / f"{dataset}.yaml"
    if not file.parent.is_dir():
        raise CliError(
            f"{one_line(str(file.parent))}: there is no such folder. Create it, with a clusters.yaml in it."
        )
    return file


def dataset_name(text: str) -> str:
    """Return the name of a file or folder as a valid dataset name; empty if no valid character remains."""
    return re.sub(r"[^a-z0-9_-]+", "-", text.lower()).strip("-_")[:63]


def _name_of(arguments: Sequence[str]) -> str:
    """Return the name of the first folder, as a dataset may be called; of a blob, that of its container's folder."""
    first = arguments[0] if arguments else "."
    if "://" in first:
        try:
            url = urlsplit(first)
        except ValueError:  # refused when it is opened
            return "data"
        parts = [unquote(part) for part in url.path.split("/") if part]
        if url.hostname in EMULATORS:
            del parts[:1]
        return dataset_name(parts[1] if len(parts) > 1 else "") or "data"
    # Path's methods fail on links that lead to themselves, and on names that are too long.
    path = Path(os.path.realpath(first))
    folder = path if os.path.isdir(path) else path.parent  # noqa: PTH112
    return dataset_name(folder.name) or "data"


def _facts(name: str, files: Files, arguments: Sequence[str], machines: Mapping[str, Any]) -> Facts:
    by_split = files.by_split
    sample, data_format, looked, class_names = Sample(), "", dict[str, list[Looked]](), dict[str, tuple[str, ...]]()
    for split, members in by_split.items():
        for shard in dict.fromkeys((members[0], members[-1])):
            with _opened(shard) as source:
                data_format = data_format or format_of(source)
                class_names = class_names or (stated_classes(source) if data_format == "parquet" else {})
                found = read_sample(source, shard.label)
                looked.setdefault(split, []).append(replace(found, records=()))
                for record in found.records:
                    sample.add(shard.label, record)
                sample.num_shards += 1
    if not sample.features:
        first = next(iter(by_split.values()))[0]
        raise CliError(f"{shown(first.label)}: no record has a feature, so there is nothing to train on.")
    counts, counted_by = _counts(arguments, by_split, looked)
    return Facts(
        dataset=name,
        data_format=data_format,
        sample=sample,
        splits=files.num_shards,
        layout=files.layout,
        has_marker=files.has_marker,
        columns=files.columns,
        counts=counts,
        counted_by=counted_by,
        classes=_classes(arguments),
        class_names=class_names,
        **machines,
    )


@contextlib.contextmanager
def _opened(shard: ShardInput) -> Iterator[ShardSource]:
    try:
        if shard.is_url:
            yield open_url(shard.location)
        else:
            with LocalFileSource(Path(shard.location)) as source:
                yield source
    except SourceError as error:
        reason = str(error).removeprefix(f"{shard.label}: ")
        raise CliError(f"{shown(shard.label)}: cannot be read: {reason}.") from error


def _counts(
    arguments: Sequence[str], by_split: Mapping[str, Sequence[ShardInput]], looked: Mapping[str, Sequence[Looked]]
) -> tuple[dict[str, int], str]:
    """Return the record count of each split and its source: stated next to the shards, counted, or estimated."""
    path = find_counts(arguments or (".",))
    if path is not None:
        with contextlib.suppress(OSError, CountsError), path.open("rb") as file:
            stated = read_counts(path.name, file.read(MAX_COUNTS_BYTES + 1))
            return {split: sum(counts) for split, counts in stated.splits.items()}, path.name
    counts, is_counted = {}, True
    for split, shards in looked.items():
        counts[split] = sum(shard.num_records for shard in shards)
        is_counted &= len(shards) == len(by_split[split]) and all(shard.is_counted for shard in shards)
        if len(shards) < len(by_split[split]):
            counts[split] = int(counts[split] * _ratio_to_all(by_split[split], shards))
    return counts, "counted" if is_counted else "estimated"


def _ratio_to_all(members: Sequence[ShardInput], seen: Sequence[Looked]) -> float:
    """Return how many times as much all shards of a split have as those that were looked at."""
    if any(shard.is_url for shard in members):
        return len(members) / len(seen)
    total = sum(Path(shard.location).stat().st_size for shard in members)
    return total / max(1, sum(shard.size_bytes for shard in seen))


def _classes(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the classes that dataset.json states."""
    path = find_counts(arguments or (".",))
    if path is None or path.name != DATASET_FILE:
        return ()
    try:
        with path.open("rb") as file:
            members = json.loads(file.read(MAX_FILE_BYTES + 1))
        return tuple(map(str, members["classes"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ()


def machines_of(folder: Path, cluster: str | None, ask: Ask | None = None) -> dict[str, Any]:
    """Return the cluster's machines from the clusters.yaml in the folder. Raises CliError for an unknown cluster."""
    from function_app.config.clusters import CLUSTERS_FILE
    from function_app.config.pipeline_files import load_clusters
    from function_app.domain.errors import PipelineError

    if not (folder / CLUSTERS_FILE).is_file():
        return {"cluster": cluster}
    try:
        clusters = load_clusters(folder)
        names = list(clusters.clusters)
        machines = clusters.machines(
            cluster or ((ask or _ask)("Which cluster?", names) if len(names) > 1 else None) or names[0]
        )
    except (PipelineError, ValueError) as error:
        raise CliError(str(error)) from error
    return {
        "cluster": machines.cluster,
        "max_nodes": machines.max_nodes,
        "processes_per_node": machines.processes_per_node,
    }


def _ask(question: str, answers: Sequence[str]) -> str | None:
    """Ask a person at a terminal; None if there is none."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return None
    chosen: str = click.prompt(question, type=click.Choice(list(answers)), default=answers[0])
    return chosen


def _without_answer(_question: str, _answers: Sequence[str]) -> None:
    """Answer as if there were no terminal."""


def report(written: Written, shards: Sequence[str]) -> None:
    """Say what was written, what is left to check, and what comes next."""
    from cli.check import as_text, checked_files

    file = from_here(written.file)
    click.echo(
        f"Wrote {one_line(str(file))}" if written.is_new else f"{one_line(str(file))} exists and is up to date"
    )
    for mark in written.marks:
        click.echo(f"  check {one_line(mark)}")
    for checked in checked_files(file):
        click.echo(as_text(checked))
    if any(map(is_folder, shards)):
        click.echo("Next: bring the pipeline into service; landfall reconcile then finds the files that are there")
        return
    where = " ".join(map(shown, shards)) or "."
    click.echo(f"Next: landfall validate {where} --complete --pipeline {one_line(str(file))}")
