"""How the versions of a storm lie in storage, and what their writer adds once all files are there."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.tables import TableWriter, name_in_table

Seal = Callable[[Mapping[str, bytes], int], tuple[str, bytes] | None]
"""Takes the files of a version and the records of each; returns the name and the content of the file that ends it.

None where nothing has changed since the last time.
"""


@dataclass(frozen=True, kw_only=True)
class StormLayout:
    """One kind of ``data.layout`` with the names that its files have."""

    section: str
    """As a pipeline states it."""
    names: Callable[[str, int, int], str]
    """Takes split, index and number of the split's files."""
    sealer: Callable[[Path], Seal] | None = None
    """Begins a version, with a folder for what it keeps; None where nothing is written after the files."""
    is_table: bool = False
    """Whether files of Parquet are added and removed by commits, and none is written twice or deleted."""
    may_lose_files: bool = False
    """Whether a version without one of its files is whole again by itself."""

    def stored(self, files: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return files with the names that they have in storage."""
        return {name_in_table(name, files[name]) if self.is_table else name: files[name] for name in files}

    def shard_names(self, num_shards: int) -> list[str]:
        """Return the files of a version: the last one is for validation."""
        train = num_shards - 1
        return [self.names("train", index, train) for index in range(train)] + [self.names("validation", 0, 1)]


def _marker(_files: Mapping[str, bytes], _records: int) -> tuple[str, bytes]:
    return "_SUCCESS", b""


def _table(files: Mapping[str, bytes], _records: int) -> tuple[str, bytes]:
    """A CSV that states the split, which no name says, and the checksum of each file."""
    rows = [f"{name},{split_of(name)},{hashlib.sha256(content).hexdigest()}" for name, content in files.items()]
    return "files.csv", "\n".join(["name,split,sha256", *rows]).encode()


def _readme(files: Mapping[str, bytes], records: int) -> tuple[str, bytes]:
    """The metadata of the Hub: patterns, and the number of records of each split."""
    splits = [split_of(name) for name in files]
    lines = ["---", "configs:", "- config_name: default", "  data_files:"]
    lines += [f"  - {{split: {split}, path: data/{split[0]}-*}}" for split in dict.fromkeys(splits)]
    lines += ["dataset_info:", "  splits:"]
    lines += [
        f"  - {{name: {split}, num_examples: {splits.count(split) * records}}}" for split in dict.fromkeys(splits)
    ]
    return "README.md", "\n".join([*lines, "---", ""]).encode()


def split_of(name: str) -> str:
    """Return the split of a file: the first letter of its name or folder says it."""
    return "validation" if name.removeprefix("data/").removeprefix("split=").startswith("v") else "train"


LAYOUTS: Sequence[StormLayout] = (
    StormLayout(section="names", names=lambda split, n, of: f"{split}-{n:05d}-of-{of:05d}.tfrecord"),
    StormLayout(
        section="marker", names=lambda split, n, _: f"split={split}/part-{n:05d}.tfrecord", sealer=lambda _: _marker
    ),
    StormLayout(
        section="{kind: manifest, manifest: files.csv}",
        names=lambda split, n, _: f"{split[0]}{n:05d}.tfrecord",
        sealer=lambda _: _table,
    ),
    StormLayout(
        section="{kind: manifest, manifest: README.md}",
        names=lambda split, n, _: f"data/{split[0]}-{n:05d}.tfrecord",
        sealer=lambda _: _readme,
    ),
    StormLayout(
        section="{kind: quiet, quiet_s: 60}",
        names=lambda split, n, _: f"{split}/part-{n:05d}.tfrecord",
        may_lose_files=True,
    ),
    StormLayout(
        section="delta",
        names=lambda split, n, _: f"split={split}/part-{n:05d}.parquet",
        sealer=TableWriter,
        is_table=True,
        may_lose_files=True,
    ),
)


def layout_of(dataset: str) -> StormLayout:
    """Return the layout of a dataset, by the number in its name."""
    return LAYOUTS[int(dataset.rpartition("-")[2]) % len(LAYOUTS)]
