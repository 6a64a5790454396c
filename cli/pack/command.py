"""``landfall pack``."""

from __future__ import annotations

import functools
import json
import math
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from cli.errors import CliError
from cli.init.command import Written, checked_dataset, dataset_name, report, write_pipeline
from cli.pack.collection import Collection
from cli.pack.packer import Packer, locked
from cli.progress import progress_bar
from shared.safe_text import counted
from shared.shard_names import MAX_SHARDS_PER_SPLIT

DEFAULT_NUM_SHARDS = 8
DEFAULT_SHARE = 0.1
AS_JSON = "landfall.pack.as_json"
"""Key of click's context for --json, so that the commands of the sources need not pass it on."""
DATASET, PIPELINE, INIT = "landfall.pack.dataset", "landfall.pack.pipeline", "landfall.pack.init"
"""Keys of click's context for --dataset, --pipeline and --init."""
OTHER_FILE = "Remove it, or pass another file to --pipeline."
ROWS_FILE = ".landfall-pack.rows"
"""Temporary file in the target folder with the values of the table that is packed."""

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def _common(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of every kind of source."""
    options = (
        click.option(
            "--to",
            "target",
            required=True,
            type=click.Path(file_okay=False, path_type=Path),
            help="Folder for the shards.",
        ),
        click.option(
            "--shards",
            type=click.IntRange(1, MAX_SHARDS_PER_SPLIT),
            metavar="N",
            default=DEFAULT_NUM_SHARDS,
            help="Number of shards of the largest split; smaller splits get fewer in proportion.",
        ),
        click.option("--seed", type=int, default=0, help="Seed for shuffling; the same seed gives the same output."),
        *_init_options(),
        _kept(
            AS_JSON,
            "--json",
            is_flag=True,
            help="Print one JSON object with the shards, their size, notes on the source, and the pipeline file.",
        ),
    )
    command = _reporting_unreadable_sources(command)
    for option in reversed(options):
        command = option(command)
    return command


def _init_options() -> tuple[Any, ...]:
    """Return the options of the last step, which writes a pipeline file."""
    return (
        _kept(
            DATASET,
            "--dataset",
            callback=checked_dataset,
            metavar="NAME",
            help="Name of the dataset and the pipeline (default: the name of the source).",
        ),
        _kept(
            PIPELINE,
            "--pipeline",
            type=click.Path(dir_okay=False, path_type=Path),
            metavar="FILE",
            help="Pipeline file to write, in a folder with a clusters.yaml (default: pipelines/NAME.yaml).",
        ),
        _kept(
            INIT, "--init/--no-init", default=True, help="Write a pipeline file at the end, as `landfall init` does."
        ),
    )


def _kept(key: str, name: str, *, callback: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Return an option that click's context keeps under ``key``, and that is not passed to the command."""

    def keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        context.meta[key] = value if callback is None else callback(context, parameter, value)

    return click.option(name, expose_value=False, callback=keep, **options)


def _reporting_unreadable_sources(command: Callable[..., None]) -> Callable[..., None]:
    """Turn an OSError into a CliError that names the file."""

    @functools.wraps(command)
    def wrapper(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
        except OSError as error:
            raise CliError(f"{error.filename or 'the source'}: cannot be read: {error.strerror}.") from error

    return wrapper


def _checked_share(_context: click.Context, _parameter: click.Parameter, share: float) -> float:
    if math.isnan(share):
        raise click.BadParameter("nan is not a number.")
    return share


_share = click.option(
    "--validation-share",
    type=click.FloatRange(0, 1, max_open=True),
    metavar="SHARE",
    default=DEFAULT_SHARE,
    callback=_checked_share,
    help=(
        "Share of the examples that become the split validation if the source has no such split; 0 for no split. An "
        "image's name (or a row's number) and --seed decide its split, so that it is the same each time."
    ),
)


@click.group(epilog="Example: landfall pack images photos --to shards")
def pack() -> None:
    """Pack images or tables into TFRecord shards, with a dataset.json that states their record counts.

    Every shard gets the same share of each class, and the same --seed gives the same shards. Each shard is validated
    before it gets its final name. To continue an interrupted command, repeat it. At the end, a pipeline file is
    written for the shards, as `landfall init` does; an existing file is kept.
    """


@pack.command(
    short_help="Pack a folder of images, one folder for each class.",
    epilog="Example: landfall pack images photos --to shards",
)
@click.argument("folder", type=_FOLDER)
@_common
@_share
def images(folder: Path, *, target: Path, shards: int, seed: int, validation_share: float) -> None:
    """Pack FOLDER/<class>/*.jpg|png, or FOLDER/<split>/<class>/…; the bytes of the files are kept unchanged.

    If the only split is train, a tenth of the images becomes the split validation (--validation-share).
    """
    from cli.pack.images import find_images

    if Path(os.path.realpath(target)).is_relative_to(folder.resolve()):  # `target` may be a link to itself
        raise click.UsageError(f"--to {target} is inside {folder}, where it would be taken for a class.")
    run(find_images(folder, validation_share=validation_share, seed=seed), target, shards, seed)


@pack.command(
    short_help="Pack CIFAR-10's python batches.",
    epilog="Example: landfall pack cifar10 cifar-10-batches-py --to shards",
)
@click.argument("folder", type=_FOLDER)
@_common
@click.option("--encoding", type=click.Choice(["raw", "png"]), default="raw", help="Encoding of the packed images.")
def cifar10(folder: Path, *, target: Path, shards: int, seed: int, encoding: Any) -> None:
    """Pack CIFAR-10's python batches (data_batch_1 … test_batch). Code in their pickles is not run."""
    from cli.pack.cifar10 import find_cifar10

    run(find_cifar10(folder, encoding), target, shards, seed)


@pack.command(
    short_help="Pack ImageNet in the layout of Kaggle's download.",
    epilog="Example: landfall pack imagenet CLS-LOC --synsets mapping.txt --to shards",
)
@click.argument("folder", type=_FOLDER)
@_common
@click.option(
    "--synsets", required=True, type=_FILE, help="File with one synset per line; the first line is label 1."
)
@click.option(
    "--validation-labels",
    type=_FILE,
    help=(
        "LOC_val_solution.csv, or a file with one synset per image of FOLDER/val (default: none; FOLDER/val has a "
        "folder for each synset)."
    ),
)
def imagenet(
    folder: Path, *, target: Path, shards: int, seed: int, synsets: Path, validation_labels: Path | None
) -> None:
    """Pack ImageNet's own layout: FOLDER/train/<synset>/*.JPEG, and FOLDER/val with a file of labels."""
    from cli.pack.imagenet import find_imagenet

    run(find_imagenet(folder, synsets, validation_labels), target, shards, seed)


@pack.command(
    short_help="Pack NIH's ChestX-ray14 by patient.",
    epilog="Example: landfall pack xrays ChestXray-NIHCC --to shards --size 256",
)
@click.argument("folder", type=_FOLDER)
@_common
@click.option("--finding", default="Effusion", help="Finding that label 1 stands for.")
@click.option(
    "--size",
    type=click.IntRange(16, 1024),
    metavar="SIZE",
    help="Resize to SIZE × SIZE pixels (default: keep the size).",  # noqa: RUF001 - a multiplication sign
)
@click.option(
    "--validation-share",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    metavar="SHARE",
    default=0.1,
    callback=_checked_share,
    help="Share of the patients outside the test split that become the split validation.",
)
def xrays(
    folder: Path, *, target: Path, shards: int, seed: int, finding: str, size: int | None, validation_share: float
) -> None:
    """Pack NIH's ChestX-ray14: Data_Entry_2017*.csv, test_list.txt and the PNG files, anywhere below FOLDER.

    All images of a patient go into the same split.
    """
    from cli.pack.xrays import find_xrays

    collection = find_xrays(folder, finding=finding, size=size, validation_share=validation_share, seed=seed)
    run(collection, target, shards, seed)


@pack.command(
    short_help="Pack a Parquet or CSV table.",
    epilog="Example: landfall pack table rows.parquet --to shards --label kind",
)
@click.argument("file", type=_FILE)
@_common
@_share
@click.option(
    "--label",
    help="Column with the labels; texts become numbers, and dataset.json lists the texts (default: no labels).",
)
def table(file: Path, *, target: Path, shards: int, seed: int, validation_share: float, label: str | None) -> None:
    """Pack a Parquet or CSV table: a feature for each column, an example for each row.

    The table may be larger than memory. While it is packed, the --to folder needs space for a copy of its values.
    """
    from cli.pack.tables import read_table

    rows_file = target / ROWS_FILE
    with locked(target):
        try:
            collection = read_table(file, rows_file, label=label, validation_share=validation_share, seed=seed)
            _pack(collection, target, shards, seed)
        finally:
            rows_file.unlink(missing_ok=True)


def run(collection: Collection, target: Path, num_shards: int, seed: int) -> None:
    """Pack a collection while no other command packs into the folder. Raises CliError."""
    with locked(target):
        _pack(collection, target, num_shards, seed)


def _pack(collection: Collection, target: Path, num_shards: int, seed: int) -> None:
    """Pack a collection under a progress bar, then print notes on its source, such as files that were left out."""
    packer = Packer(collection, target, shards=shards_of_splits(collection, num_shards), seed=seed)
    what = f"packing {packer.num_examples:,} examples"
    with progress_bar(what, packer.num_examples, counts="examples") as step:
        paths = packer.pack(step)
    size_bytes = sum(path.stat().st_size for path in paths)
    context = click.get_current_context()
    if context.meta[AS_JSON]:
        facts = {"examples": packer.num_examples, "size_bytes": size_bytes, "shards": [str(path) for path in paths]}
        written, problems = _initialised(context, target)
        file, marks = (str(written.file), list(written.marks)) if written is not None else (None, [])
        click.echo(json.dumps({**facts, "notes": [*collection.notes, *problems], "pipeline": file, "check": marks}))
        return
    following = f"Next: landfall init {shlex.quote(str(target))}"
    examples, files = counted(packer.num_examples, "example"), counted(len(paths), "shard")
    packed = f"Packed {examples} into {files}, {size_bytes:,} bytes, in {target}."
    click.echo(packed if context.meta[INIT] else f"{packed} {following}")
    for note in collection.notes:
        click.echo(note)
    if not context.meta[INIT]:
        return
    written, problems = _initialised(context, target)
    for problem in problems:
        click.echo(problem)
    if written is not None:
        report(written, [str(target)])
    else:
        click.echo(following)


def _initialised(context: click.Context, target: Path) -> tuple[Written | None, list[str]]:
    """Write a pipeline for packed shards, unless --no-init; return it, or why it could not be written."""
    if not context.meta[INIT]:
        return None, []
    source = Path(context.params.get("folder") or context.params["file"]).resolve()
    name = context.meta[DATASET] or dataset_name(source.name if source.is_dir() else source.stem) or "data"
    try:
        return write_pipeline([str(target)], name, context.meta[PIPELINE], otherwise=OTHER_FILE), []
    except (CliError, click.UsageError) as error:
        return None, [f"No pipeline file was written: {error.format_message()}"]


def shards_of_splits(collection: Collection, num_shards: int) -> dict[str, int]:
    """Return the number of shards of each split, in proportion to their sizes. Raises CliError for empty shards."""
    sizes = {split: len(entries) for split, entries in collection.splits.items()}
    if empty := [split for split, size in sizes.items() if not size]:
        raise CliError(
            f"Split {' and split '.join(empty)}: has no example. Is --validation-share too small for so few examples?"
        )
    largest = max(sizes.values())
    if num_shards > largest:
        raise CliError(
            f"--shards {num_shards}: the largest split has only {largest} examples. Pass a smaller number."
        )
    return {split: max(1, round(num_shards * size / largest)) for split, size in sizes.items()}
