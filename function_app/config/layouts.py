"""The section ``data.layout``: which files of a version are its shards, in which split, and when it is complete.

Spark, Hadoop, Databricks and Dask choose file names themselves, write them flat or in folders, and write a marker
when they have finished. Such files have no index: their position is a digest of the path until the closing, which
numbers them in the order of their names.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from function_app.config.fields import Section, Split, matching
from shard_validation import COUNT_FILES
from shard_validation.delta_log import LOG_FOLDER, is_of_log
from shard_validation.file_lists import StatedFile, list_checksums, states_splits
from shared.safe_text import shown
from shared.shard_names import (
    MAX_NAME_CHARS,
    SPLIT_KEY,
    SPLIT_WORDS,
    ShardName,
    ShardNameError,
    parse_shard_name,
    split_in_name,
)

DOCUMENTS = (".md", ".txt", ".json", ".yaml", ".yml", ".csv", ".html", ".pdf")
"""Suffixes of files that are stored next to the shards and are often listed with them."""
MAX_SHARE_ERROR = 1e-6
MAX_QUIET_S = 30 * 24 * 3600
POSITION_BITS = 60
"""Positions fit a signed integer of 64 bits, and 100,000 files share one with a chance of one in 10^8."""

FileName = Annotated[str, matching(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", "a file name of letters, digits, . - and _")]
Pattern = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)]


class NoSplitError(ShardNameError):
    """Nothing says of which split a file is, or its path and the list of the files contradict each other."""


class _OtherSplitError(ShardNameError):
    """The path says a split that the pipeline does not ask for."""


class Layout(Section):
    """How the files of a version lie, and what says that it is complete."""

    kind: Literal["names", "marker", "manifest", "delta", "quiet"] = "names"
    """What says that a version is complete: `names`, the `-of-N` in the name of each shard; `marker`, a file that is
    written after the shards, as Spark, Hadoop, Databricks and Dask do it; `manifest`, a file that lists the shards,
    such as SHA256SUMS; `delta`, the log of a Delta table, each commit of which is a generation; or `quiet`, that no
    file changes for a while, which is a guess. With all but `names`, the names and folders of shards are free."""
    marker: FileName = "_SUCCESS"
    """With `marker`: the name of that file. It counts for the files in and below its folder that are not newer."""
    manifest: FileName = "SHA256SUMS"
    """With `manifest`: the name of the list in the version's folder, which says how it is read."""
    quiet_s: int = Field(default=900, ge=60, le=MAX_QUIET_S)
    """With `quiet`: seconds without a change after which a version is taken for whole. The sweep looks."""
    patterns: dict[Split, Pattern] = Field(default_factory=dict, max_length=16)
    """With free names: the split of files that are in no folder of a split, by a pattern of their path within the
    version, such as `part-*`. The first that matches counts."""
    shares: dict[Split, Annotated[float, Field(gt=0, le=1)]] = Field(default_factory=dict, max_length=16)
    """With free names: the share of each split, which together are 1. Files without folder or pattern of a split are
    drawn by a digest of their path, the same at each time. With one split and no shares, they are of that split."""
    draw_by: Annotated[str, matching(r"[A-Za-z0-9_]{1,64}", "the name of a column")] | None = None
    """With `shares`: a column of Hive partitions, such as `patient` of `patient=17`, by whose value files are drawn
    instead, so that all files of one value are in one split."""

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        for field, kind in (("marker", "marker"), ("manifest", "manifest"), ("quiet_s", "quiet")):
            if field in self.model_fields_set and self.kind != kind:
                raise ValueError(f"{field} needs kind: {kind}")
        if not self.has_any_names and (self.patterns or self.shares or self.draw_by):
            raise ValueError("patterns, shares and draw_by need another kind, because names state the split")
        list_checksums(self.manifest)
        self._check_patterns()
        if self.shares and abs(sum(self.shares.values()) - 1) > MAX_SHARE_ERROR:
            raise ValueError(f"shares must add up to 1, got {sum(self.shares.values()):g}")
        if self.draw_by is not None and not self.shares:
            raise ValueError("draw_by needs shares")
        return self

    def _check_patterns(self) -> None:
        """Raise ValueError for a pattern of every file before others, which would never count."""
        splits = list(self.patterns)
        every = next((number for number, pattern in enumerate(self.patterns.values()) if pattern == "*"), None)
        if every is not None and splits[every + 1 :]:
            later = ", ".join(splits[every + 1 :])
            raise ValueError(
                f"patterns: '*' of {splits[every]} matches every file, so none is left for {later}; write it last"
            )

    @property
    def has_any_names(self) -> bool:
        """Whether files may have any names and lie in folders."""
        return self.kind != "names"

    @property
    def digests(self) -> tuple[str, ...]:
        """The digests that validation takes because the list may state them."""
        return list_checksums(self.manifest) if self.kind == "manifest" else ()

    def to_json(self) -> dict[str, Any]:
        """Return the fields that differ from the defaults, and the kind, from which the layout can be made again."""
        return {"kind": self.kind, **self.model_dump(exclude_defaults=True)}

    @property
    def has_list(self) -> bool:
        """Whether a list says which files there are, and what each of them is."""
        return self.kind in {"manifest", "delta"}

    def check_splits(self, splits: Collection[str]) -> None:
        """Raise ValueError if the layout speaks of splits that the pipeline does not have."""
        for field, named in (("patterns", self.patterns), ("shares", self.shares)):
            if unknown := sorted(set(named) - set(splits)):
                raise ValueError(f"layout.{field}: {', '.join(unknown)} is not in splits")

    def may_hold_shards(self, folders: Collection[str]) -> bool:
        """Whether folders below a version may hold its shards."""
        is_log = self.kind == "delta" and list(folders) == [LOG_FOLDER]
        return not folders or is_log or (self.has_any_names and not any(map(_is_hidden, folders)))

    def is_left_behind(self, path: str) -> bool:
        """Whether a path within a version is what programs that write data leave behind, or hidden."""
        return any(map(_is_hidden, path.split("/"))) or path.endswith(".crc")

    def is_text(self, path: str) -> bool:
        """Whether a path within a version is that of a text, which a list may name beside the shards."""
        return self.kind == "manifest" and path.lower().endswith(DOCUMENTS)

    def is_marker(self, path: str) -> bool:
        """Whether a path within a version is that of a marker, or of the list of its files."""
        if self.kind == "manifest":
            return path == self.manifest
        if self.kind == "delta":
            return is_of_log(path)
        *folders, name = path.split("/")
        return self.kind == "marker" and name == self.marker and self.may_hold_shards(folders)

    def shard(self, path: str, splits: Collection[str] | None) -> ShardName:
        """Return the shard that a path within a version means. Raises ShardNameError, which says why it is none.

        ``splits`` are those of the pipeline; None if they are unknown.
        """
        if not self.has_any_names:
            return parse_shard_name(path)
        _check_path(path)
        if self.is_left_behind(path):
            raise ShardNameError(
                f"{path} is not a shard: names that begin with _ or . or end in .crc are hidden or written by the "
                "program that wrote the data"
            )
        if self.is_marker(path):
            raise ShardNameError(f"{path} is not a shard: it is the {self.kind} that data.layout names")
        if self.is_text(path):
            raise ShardNameError(f"{path} is not a shard: it is a text about the data")
        return ShardName(
            name=path,
            split=self._split_of(path, splits or ()),
            index=int.from_bytes(_digest(path)) >> (64 - POSITION_BITS),
            num_shards=0,
        )

    def listed(self, file: StatedFile, splits: Collection[str]) -> ShardName:
        """Return the shard that a list means. Raises ShardNameError, or NoSplitError if the list must be corrected.

        The split in the path must agree with the list. If the path has no split, the list takes precedence over a
        draw. The list may state a split that the pipeline does not list.
        """
        try:
            shard = self.shard(file.name, splits)
            own = self._split_in_path(file.name, splits, by_list=file.split is not None)
        except _OtherSplitError as error:
            if file.split is not None and file.split in splits:
                raise NoSplitError(
                    f"{error}; the list says {shown(file.split)}: move the file, or correct it"
                ) from error
            raise
        if own is not None and file.split not in (None, own):
            raise NoSplitError(
                f"{file.name} is in split {own} by its path, not in {shown(file.split)}; move it, or correct the "
                "list or data.layout.patterns"
            )
        split = own or file.split or self._drawn_split(file.name, splits)
        if split is None:
            raise self._no_split(file.name)
        return replace(shard, split=split)

    def asked(self, listed: Iterable[StatedFile], splits: Collection[str]) -> tuple[dict[str, ShardName], list[str]]:
        """Return the listed shards of these splits, by name, and the corrections that the list needs."""
        shards, problems = dict[str, ShardName](), list[str]()
        for file in listed:
            try:
                shard = self.listed(file, splits)
            except NoSplitError as error:
                problems.append(f"{file.place}: {error}")
            except ShardNameError:
                continue
            else:
                if shard.split in splits:
                    shards[file.name] = shard
        return shards, problems

    def _split_of(self, path: str, splits: Collection[str]) -> str:
        split = self._split_in_path(path, splits, by_list=self._list_states_splits)
        split = split or self._drawn_split(path, splits)
        if split is None and splits and self._list_states_splits:
            return next(iter(splits))  # where its verdict is kept: the list says the split, and may come later
        if split is None:
            raise self._no_split(path)
        return split

    @property
    def _list_states_splits(self) -> bool:
        return self.kind == "manifest" and states_splits(self.manifest)

    def _split_in_path(self, path: str, splits: Collection[str], *, by_list: bool) -> str | None:
        """Return the split that a path says; None if it says none.

        ``by_list``: a list says the split, which may have another name there, such as validation of files in val/.
        """
        *folders, _ = path.split("/")
        for folder in folders:
            split = folder.removeprefix(SPLIT_KEY)
            if split in splits:
                return split
            if folder.startswith(SPLIT_KEY) or folder in SPLIT_WORDS:
                self._check_other(path, split, splits, by_list=by_list)
        for split, pattern in self.patterns.items():
            if fnmatchcase(path, pattern):
                return split
        if self.kind == "manifest" and (own := split_in_name(path)) is not None:
            if own in splits:
                return own
            self._check_other(path, own, splits, by_list=by_list)
        return None

    def _check_other(self, path: str, split: str, splits: Collection[str], *, by_list: bool) -> None:
        if not (by_list and SPLIT_WORDS.get(split) in splits):
            raise _OtherSplitError(f"{path}: the pipeline has splits {', '.join(splits)}, not {split}")

    def _drawn_split(self, path: str, splits: Collection[str]) -> str | None:
        """Return the split of a file without any other indication: drawn, or the only split."""
        if self.shares:
            return self._drawn(self._drawn_by(path, path.split("/")[:-1]))
        return next(iter(splits)) if len(splits) == 1 and not self.patterns else None

    def _no_split(self, path: str) -> NoSplitError:
        in_list = ", let the list state its split" if self._list_states_splits else ""
        return NoSplitError(
            f"{path} has no split: put it into a folder named after a split, such as train/ or {SPLIT_KEY}train/"
            f"{in_list}, or set data.layout.patterns or data.layout.shares"
        )

    def _drawn_by(self, path: str, folders: Collection[str]) -> str:
        if self.draw_by is None:
            return path
        key = f"{self.draw_by}="
        value = next((folder for folder in folders if folder.startswith(key)), None)
        if value is None:
            raise ShardNameError(f"{path} is in no folder {key}…, by which data.layout.draw_by draws its split")
        return value

    def _drawn(self, key: str) -> str:
        position, end = int.from_bytes(_digest(key)) / 2**64, 0.0
        for split, share in self.shares.items():
            end += share
            if position < end:
                return split
        return split


def _of_kind(value: Any) -> Any:
    """Return ``{kind: KIND}`` for ``KIND`` alone."""
    return {"kind": value} if isinstance(value, str) else value


LayoutField = Annotated[Layout, BeforeValidator(_of_kind)]


def folders_above(path: str) -> Iterator[str]:
    """Yield the folders above a path within a version, beginning with the version's folder, which is empty."""
    yield ""
    folders = path.split("/")[:-1]
    yield from ("/".join(folders[: number + 1]) for number in range(len(folders)))


def _check_path(path: str) -> None:
    if len(json.dumps(path)) > MAX_NAME_CHARS or not path.isprintable() or not all(path.split("/")):
        raise ShardNameError(
            f"{path[:80]!r} cannot be a shard's path: use at most {MAX_NAME_CHARS} printable characters below the "
            "version's folder, and no folder without a name"
        )
    if path in COUNT_FILES:
        raise ShardNameError(f"{path} is not a shard: it states record counts")


def _is_hidden(name: str) -> bool:
    """Whether Spark ignores a name. The partitions of a column ``_c`` lie in ``_c=1``."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8]
