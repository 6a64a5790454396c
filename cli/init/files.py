"""Find the ``data.layout`` that fits the files of a dataset: their folders, and the split of each file."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.errors import CliError
from cli.validate.inputs import ShardInput, find_inputs
from cli.validate.listed import read_table
from shard_validation import COUNT_FILES
from shard_validation.file_lists import (
    HUB_FILES,
    MAX_LIST_BYTES,
    FileList,
    FileListError,
    list_checksums,
    read_file_list,
)
from shared.safe_text import shown
from shared.shard_names import SPLIT_KEY, SPLIT_WORDS, ShardNameError, parse_shard_name

if TYPE_CHECKING:
    from function_app.config.layouts import Layout

SHARES = {"train": 0.9, "validation": 0.1}
MIN_DRAWN = 10
"""With fewer files, a split may get none."""


@dataclass(frozen=True, kw_only=True)
class Files:
    """The files of a dataset."""

    layout: Layout
    by_split: Mapping[str, Sequence[ShardInput]]
    has_marker: bool = False
    """Whether the layout's marker, or the list of the files, is among them."""

    @property
    def num_shards(self) -> dict[str, int]:
        """Split → number of shards: as the names state it, otherwise the number of files."""
        if self.layout.has_any_names:
            return {split: len(shards) for split, shards in self.by_split.items()}
        return {split: parse_shard_name(shards[0].name).num_shards for split, shards in self.by_split.items()}

    @property
    def columns(self) -> list[str]:
        """Columns of Hive partitions, such as `patient` of `patient=17`, without the column of the split."""
        folders = {f for shards in self.by_split.values() for shard in shards for f in shard.name.split("/")[:-1]}
        return sorted({folder.partition("=")[0] for folder in folders if "=" in folder} - {"split", ""})


def find_files(arguments: Sequence[str], blobs: Sequence[ShardInput] = ()) -> Files:
    """Find files with `-of-N` in their names; where there are none, files of any names, which may lie in folders.

    ``blobs`` are further files; what is beside them is in a folder of the arguments. Raises click.UsageError where
    there are none, and CliError where some are of no split.
    """
    from function_app.config.layouts import Layout

    layout = Layout(kind="marker")
    found = [*blobs, *(find_inputs(arguments, layout, may_be_empty=bool(blobs)))]
    if named := [(split, shard) for shard in found if (split := _stated_split(shard))]:
        return Files(layout=Layout(), by_split=_by_split(named))
    shards = _by_suffix(found)
    folders = [Path(argument) for argument in arguments if "://" not in argument]
    table = read_table(folders)
    if table is not None:
        shards = [shard for shard in shards if shard.name in table.files]
        if not shards:
            raise click.UsageError(f"{shown(found[0].label)}: the newest version of the Delta table has no file.")
    layout, splits = _layout([shard.name for shard in shards])
    if table is not None:
        members = layout.model_dump(include={"patterns", "shares"}, exclude_defaults=True)
        layout = Layout(kind="delta", **members)
    has_marker = table is not None or any((folder / layout.marker).is_file() for folder in folders)
    lists = [] if has_marker else list(_lists(folders))
    for stated in lists:
        if by_split := _by_list(stated, shards):
            return Files(layout=_manifest(stated), by_split=by_split, has_marker=True)
    try:
        by_split = _by_split((layout.shard(shard.name, splits).split, shard) for shard in shards)
    except ShardNameError as error:
        raise CliError(f"{shown(str(error))}. Other files are in such folders: {', '.join(splits)}.") from error
    if lists:
        members = layout.model_dump(include={"patterns", "shares"}, exclude_defaults=True)
        layout = _manifest(lists[0], **members)
    return Files(layout=layout, by_split=by_split, has_marker=has_marker or bool(lists))


def _by_suffix(found: Sequence[ShardInput]) -> list[ShardInput]:
    """Return the files that are shards by their suffix, or where none is, those without one."""
    shards = [shard for shard in found if ".tfrecord" in shard.name or shard.name.endswith(".parquet")]
    shards = shards or [
        shard for shard in found if "." not in shard.name.rpartition("/")[2] and not may_be_list(shard.name)
    ]
    if not shards:
        raise click.UsageError(
            f"{shown(found[0].label)}: its name is not that of a shard, and no other file has such a name. "
            "Pack the data: landfall pack --help"
        )
    return shards


def may_be_list(path: str) -> bool:
    """Return whether a file's name says how it lists others."""
    try:
        list_checksums(path)
    except FileListError:
        return False
    return True


def _manifest(stated: FileList, **members: Any) -> Layout:
    from function_app.config.layouts import Layout

    return Layout(kind="manifest", manifest=stated.source, **members)


def _lists(folders: Sequence[Path]) -> Iterator[FileList]:
    """Yield the lists of files that can be read; the metadata of a README, which state least, come last."""
    files = [file for folder in folders for file in folder.glob("*") if file.name not in COUNT_FILES]
    for path in sorted(files, key=lambda file: (file.name in HUB_FILES, file)):
        with contextlib.suppress(ValueError, OSError), path.open("rb") as file:
            list_checksums(path.name)
            yield read_file_list(path.name, file.read(MAX_LIST_BYTES + 1))


def _by_list(stated: FileList, shards: Sequence[ShardInput]) -> dict[str, list[ShardInput]]:
    """Return the shards by the splits that a list states; none if it does not state the split of each."""
    by_name = {shard.name: shard for shard in shards}
    try:
        files = stated.among(by_name).values()
        splits = sorted({file.split for file in files if file.split is not None})
        members = [_manifest(stated).listed(file, splits) for file in files if file.name in by_name]
    except (FileListError, ShardNameError):
        return {}
    is_stated = bool(splits) and all(file.split is not None for file in files)
    return _by_split((member.split, by_name[member.name]) for member in members) if is_stated else {}


def _stated_split(shard: ShardInput) -> str | None:
    try:
        return parse_shard_name(shard.name).split
    except ShardNameError:
        return None


def _by_split(shards: Iterable[tuple[str, ShardInput]]) -> dict[str, list[ShardInput]]:
    found: dict[str, list[ShardInput]] = {}
    for split, shard in shards:
        found.setdefault(split, []).append(shard)
    return dict(sorted(found.items(), key=lambda entry: (entry[0] != "train", entry[0])))


def _layout(paths: Sequence[str]) -> tuple[Layout, list[str]]:
    """Return the layout and the splits of files with any names: by folder, by name, drawn, or one split."""
    from function_app.config.layouts import Layout

    if by_folder := {split for path in paths if (split := _folder_of_split(path))}:
        return Layout(kind="marker"), sorted(by_folder)
    by_name = [_first_word(path) for path in paths]
    if len(set(by_name)) > 1 and None not in by_name and len({"/" in path for path in paths}) == 1:
        folder = "*/" if "/" in paths[0] else ""
        patterns = {split: f"{folder}{split}[!a-z]*" for split in sorted(filter(None, set(by_name)))}
        return Layout(kind="marker", patterns=patterns), list(patterns)
    drawn = Layout(kind="marker", shares=SHARES)
    if len(paths) >= MIN_DRAWN and len({drawn.shard(path, SHARES).split for path in paths}) == len(SHARES):
        return drawn, list(SHARES)
    return Layout(kind="marker"), ["train"]


def _folder_of_split(path: str) -> str | None:
    """Return the split that a folder names, as `Layout.shard` finds it."""
    folders = path.split("/")[:-1]
    named = (f.removeprefix(SPLIT_KEY) for f in folders if f.startswith(SPLIT_KEY) or f in SPLIT_WORDS)
    return next(named, None)


def _first_word(path: str) -> str | None:
    """Return the split that a file's name begins with, such as that of `val-0.parquet`."""
    word = re.match(r"[a-z]+(?![A-Za-z])", path.rpartition("/")[2])
    return word[0] if word and word[0] in SPLIT_WORDS else None
