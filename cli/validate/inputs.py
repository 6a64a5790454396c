"""Which shards a user means: files, folders of them, addresses of blobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import click

from function_app.validation import COUNT_FILES, check_name

_SCHEMES = ("https://", "http://")


@dataclass(frozen=True, kw_only=True)
class ShardInput:
    """One shard to judge."""

    label: str
    """As it is printed: the path as given, or the address without its query, which may hold a signature."""
    location: str
    """The path, or the whole address."""
    is_url: bool = False

    @property
    def name(self) -> str:
        """The file name."""
        return unquote(urlsplit(self.location).path).rpartition("/")[2] if self.is_url else Path(self.location).name


def find_inputs(arguments: Sequence[str]) -> list[ShardInput]:
    """Return the shards in the order given, folders in order of name. Raises click.UsageError."""
    inputs = [found for argument in arguments for found in _find(argument)]
    if not inputs:
        raise click.UsageError(f"There is no shard in {', '.join(arguments)}.")
    return inputs


def _find(argument: str) -> list[ShardInput]:
    if argument.startswith(_SCHEMES):
        return [ShardInput(label=argument.partition("?")[0], location=argument, is_url=True)]
    path = Path(argument)
    if path.is_dir():
        return [ShardInput(label=str(p), location=str(p)) for p in sorted(path.iterdir()) if _is_shard(p)]
    if not path.exists():
        raise click.UsageError(f"{argument}: there is no such file or folder.")
    return [ShardInput(label=argument, location=argument)]


def _is_shard(path: Path) -> bool:
    """Tell whether a file in a folder is meant: by its name, since people keep other files beside their shards."""
    looks_like_one = ".tfrecord" in path.name or path.suffix == ".parquet"
    return path.is_file() and (looks_like_one or check_name(path.name) is None)


def find_counts(arguments: Sequence[str]) -> Path | None:
    """Return the file that states record counts, beside the shards, None where there is none."""
    folders = dict.fromkeys(
        path if path.is_dir() else path.parent for path in map(Path, arguments) if not str(path).startswith(_SCHEMES)
    )
    return next((f / name for f in folders for name in COUNT_FILES if (f / name).is_file()), None)
