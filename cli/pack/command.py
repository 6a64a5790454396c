"""The command line of ``landfall pack``."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from cli.errors import CliError
from cli.pack.collection import Collection
from cli.pack.packer import Packer, alone_in
from cli.progress import packing_bar
from shared.shard_names import MAX_SHARDS_PER_SPLIT

DEFAULT_NUM_SHARDS = 8
ROWS_FILE = ".landfall-pack.rows"
"""In the target folder while a table is packed."""

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def _common(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that every kind of source has."""
    options = (
        click.option(
            "--to", "target", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder."
        ),
        click.option(
            "--shards",
            type=click.IntRange(1, MAX_SHARDS_PER_SPLIT),
            default=DEFAULT_NUM_SHARDS,
            show_default=True,
            help="Shards of the largest split; the others get their share.",
        ),
        click.option("--seed", type=int, default=0, show_default=True, help="Of the order; the same gives the same."),
    )
    command = _naming_the_unreadable(command)
    for option in reversed(options):
        command = option(command)
    return command


def _naming_the_unreadable(command: Callable[..., None]) -> Callable[..., None]:
    """Have a source that cannot be read named: whatever lies in it, only looking tells."""

    @functools.wraps(command)
    def named(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
        except OSError as error:
            raise CliError(f"{error.filename or 'the source'}: cannot be read: {error.strerror}.") from error

    return named


def _checked_share(_context: click.Context, _parameter: click.Parameter, share: float) -> float:
    if math.isnan(share):
        raise click.BadParameter("nan is no number")
    return share


_share = click.option(
    "--validation-share",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.0,
    show_default=True,
    callback=_checked_share,
    help="Of every class, to be set aside as split validation.",
)


@click.group()
def pack() -> None:
    """Pack images or tables into TFRecord shards, with a dataset.json that states their counts.

    Shards are balanced and the same for the same --seed. Every shard is validated before it gets its name. A
    command that was interrupted goes on when it is repeated.
    """


@pack.command(short_help="Pack a folder of images, one folder for each class.")
@click.argument("folder", type=_FOLDER)
@_common
@_share
def images(folder: Path, *, target: Path, shards: int, seed: int, validation_share: float) -> None:
    """Pack FOLDER/<class>/*.jpg|png, or FOLDER/<split>/<class>/…; the files' bytes are kept as they are."""
    from cli.pack.images import find_images

    if target.resolve().is_relative_to(folder.resolve()):
        raise click.UsageError(f"--to should lie outside {folder}, where it would pass for a class; was {target}.")
    run(find_images(folder, validation_share=validation_share, seed=seed), target, shards, seed)


@pack.command(short_help="Pack CIFAR-10's python batches.")
@click.argument("folder", type=_FOLDER)
@_common
@click.option(
    "--encoding", type=click.Choice(["raw", "png"]), default="raw", show_default=True, help="Of the images."
)
def cifar10(folder: Path, *, target: Path, shards: int, seed: int, encoding: Any) -> None:
    """Pack CIFAR-10's python batches (data_batch_1 … test_batch), which are read without running them."""
    from cli.pack.cifar10 import find_cifar10

    run(find_cifar10(folder, encoding), target, shards, seed)


@pack.command(short_help="Pack ImageNet as Kaggle packs it.")
@click.argument("folder", type=_FOLDER)
@_common
@click.option("--synsets", required=True, type=_FILE, help="A synset on each line, by label, from 1.")
@click.option("--validation-labels", type=_FILE, help="A synset per image of FOLDER/val, or LOC_val_solution.csv.")
def imagenet(
    folder: Path, *, target: Path, shards: int, seed: int, synsets: Path, validation_labels: Path | None
) -> None:
    """Pack ImageNet's own layout: FOLDER/train/<synset>/*.JPEG, FOLDER/val with a file of labels."""
    from cli.pack.imagenet import find_imagenet

    run(find_imagenet(folder, synsets, validation_labels), target, shards, seed)


@pack.command(short_help="Pack NIH's ChestX-ray14 by patient.")
@click.argument("folder", type=_FOLDER)
@_common
@click.option("--finding", default="Effusion", show_default=True, help="What label 1 says that an image shows.")
@click.option("--size", type=click.IntRange(16, 1024), help="Pixels of the side to scale to; left out: as they are.")
@click.option(
    "--validation-share",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.1,
    show_default=True,
    callback=_checked_share,
    help="Of the patients that no list sets aside for the test.",
)
def xrays(
    folder: Path, *, target: Path, shards: int, seed: int, finding: str, size: int | None, validation_share: float
) -> None:
    """Pack NIH's ChestX-ray14: Data_Entry_2017*.csv, test_list.txt and the PNG files, wherever they lie in FOLDER.

    A patient's images all go into one split.
    """
    from cli.pack.xrays import find_xrays

    collection = find_xrays(folder, finding=finding, size=size, validation_share=validation_share, seed=seed)
    run(collection, target, shards, seed)


@pack.command(short_help="Pack a Parquet or CSV table.")
@click.argument("file", type=_FILE)
@_common
@_share
@click.option("--label", help="Column with the labels; texts become numbers, their names go into dataset.json.")
def table(file: Path, *, target: Path, shards: int, seed: int, validation_share: float, label: str | None) -> None:
    """Pack a Parquet or CSV table: a feature for each column, an example for each row.

    The table may be larger than the memory: while it is packed, --to holds a copy of its values beside the shards.
    """
    from cli.pack.tables import read_table

    rows_file = target / ROWS_FILE
    with alone_in(target):
        try:
            collection = read_table(file, rows_file, label=label, validation_share=validation_share, seed=seed)
            _pack(collection, target, shards, seed)
        finally:
            rows_file.unlink(missing_ok=True)


def run(collection: Collection, target: Path, num_shards: int, seed: int) -> None:
    """Pack a collection, as the only command that packs there. Raises CliError."""
    with alone_in(target):
        _pack(collection, target, num_shards, seed)


def _pack(collection: Collection, target: Path, num_shards: int, seed: int) -> None:
    """Pack it, showing progress; then say what was left out, if anything was."""
    packer = Packer(collection, target, shards=shards_of_splits(collection, num_shards), seed=seed)
    with packing_bar(f"packing {packer.num_examples:,} examples", packer.num_examples) as step:
        paths = packer.pack(step)
    size_bytes = sum(path.stat().st_size for path in paths)
    click.echo(
        f"Packed {packer.num_examples:,} examples into {len(paths)} shards, {size_bytes:,} bytes, in {target}."
    )
    for note in collection.notes:
        click.echo(note)


def shards_of_splits(collection: Collection, num_shards: int) -> dict[str, int]:
    """Return the number of shards of each split, in proportion to their sizes. Raises CliError for empty shards."""
    sizes = {split: len(entries) for split, entries in collection.splits.items()}
    if empty := [split for split, size in sizes.items() if not size]:
        raise CliError(
            f"Every split should have an example, {', '.join(empty)} has none; does --validation-share fit so few?"
        )
    largest = max(sizes.values())
    if num_shards > largest:
        raise CliError(f"--shards should be at most the {largest} examples that there are, was {num_shards}.")
    return {split: max(1, round(num_shards * size / largest)) for split, size in sizes.items()}
