"""Lists of a data set as the Hugging Face Hub has them: the metadata of README.md, and dataset_infos.json.

They state the number of records of each split. The files of a split are named, or found among the uploaded ones by
patterns (``data_files``) or by the Hub's conventions (``datasets/data_files.py``). ``num_bytes`` and
``download_size`` are not compared: they are sizes of the data in other forms.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import yaml

from shard_validation.file_lists import README_FILE, FileListError, StatedFile, whole_number
from shared.safe_text import shown
from shared.shard_names import MAX_NAME_CHARS, SPLIT_WORDS

MAX_METADATA_BYTES = 256 << 10
"""PyYAML takes some seconds for them."""
MAX_DEPTH = 20
"""Levels of YAML."""
MAX_PATTERNS = 32
"""Each is compared with up to 100,000 names."""
_FENCE = b"---"
_WILDCARDS = re.compile(r"[*?\[]")
_SHARDED = re.compile(r"data/(?P<split>[^/]+)-[0-9]{5}-of-[0-9]{5}[^/]*\.[^/]*")
_SPLIT = re.compile(r"[\w.]{1,64}")
_SEPARATORS = re.compile(r"[-._ 0-9]")
_DEFAULT = "default"
_FIX = "write them with `datasets` (push_to_hub), or use data.layout: marker"


class BoundedNodes:
    """Mixin for PyYAML's loaders of untrusted YAML: refuses aliases, which expand without bound, and deep nesting."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """See yaml.composer. Raises yaml.YAMLError."""
        loader: Any = self
        if loader.check_event(yaml.AliasEvent):
            event = loader.peek_event()
            raise yaml.YAMLError(f"aliases are not allowed, {place_of(event.start_mark)}")
        if self.depth >= MAX_DEPTH:
            raise yaml.YAMLError(f"nested more than {MAX_DEPTH} levels deep")
        self.depth += 1
        node = super().compose_node(parent, index)  # type: ignore[misc]
        self.depth -= 1
        return node


def place_of(mark: Any) -> str:
    """Return line and column of a mark, counted from 1."""
    return f"line {mark.line + 1}, column {mark.column + 1}"


class _Loader(BoundedNodes, yaml.BaseLoader):
    """Loads every scalar as text, so that differences between YAML versions (`no`, `0777`) do not matter."""


@dataclass(frozen=True, kw_only=True)
class HubList:
    """What a list states; see FileList."""

    files: Iterable[StatedFile]
    totals: Mapping[str, int] = field(default_factory=dict)
    find: Callable[[Iterable[str]], Iterator[StatedFile]] | None = None


def read_hub_list(name: str, content: bytes) -> HubList:
    """Read the metadata of README.md, or dataset_infos.json. Raises FileListError."""
    try:
        if name == README_FILE:
            config, info = _chosen(name, yaml.load(_metadata(name, content), Loader=_Loader))  # noqa: S506 (no objects)
        else:
            members = json.loads(content)
            config, info = _chosen(
                name, {"dataset_info": [{**of, "config_name": key} for key, of in members.items()]}
            )
        return _read(name, config, info)
    except FileListError:
        raise
    except yaml.YAMLError as error:
        _refuse(name, f"its metadata cannot be read as YAML: {shown(' '.join(str(error).split())[:200])}")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        _refuse(name, f"its splits cannot be read: {shown(repr(error)[:200])}")


def _refuse(name: str, problem: str) -> NoReturn:
    raise FileListError(f"{name}: {problem}")


def _metadata(name: str, content: bytes) -> bytes:
    """Return the YAML between the first line and the next one that are ``---``."""
    first, _, rest = content.removeprefix(b"\xef\xbb\xbf").partition(b"\n")
    if first.rstrip() != _FENCE:
        _refuse(name, f"it has no metadata: line 1 must be ---, then dataset_info and configs; {_FIX}")
    end = re.search(rb"^---[ \t\r]*$", rest[: MAX_METADATA_BYTES + 1], re.MULTILINE)
    if end is None:
        _refuse(name, f"its metadata has no end (a line ---) within {MAX_METADATA_BYTES >> 10} KiB")
    return rest[: end.start()]


def _chosen(name: str, metadata: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the config and its info: a version has one."""
    configs = {config["config_name"]: config for config in metadata.get("configs") or ()}
    listed = metadata.get("dataset_info") or ()
    infos = {of.get("config_name", _DEFAULT): of for of in ([listed] if isinstance(listed, dict) else listed)}
    names = list(configs or infos)
    if not names:
        _refuse(name, f"it has neither dataset_info nor configs; {_FIX}")
    marked = [
        each for each in names if each == _DEFAULT or str(configs.get(each, {}).get("default")).lower() == "true"
    ]
    if len(names) > 1 and len(marked) != 1:
        some = shown(", ".join(map(str, names))[:200])
        _refuse(name, f"it has the configs {some}, but a version has only one: mark it with default: true")
    chosen = names[0] if len(names) == 1 else marked[0]
    is_paired = len(configs) == len(infos) == 1  # people write their names differently
    return configs.get(chosen, {}), next(iter(infos.values())) if is_paired else infos.get(chosen, {})


def _read(name: str, config: Mapping[str, Any], info: Mapping[str, Any]) -> HubList:
    totals = dict[str, int]()
    for of_split in _splits(info):
        split = _checked_split(name, of_split["name"])
        number = whole_number(name, f"split {split}", "num_examples", of_split.get("num_examples"))
        totals |= {split: number} if number is not None else {}
    folder = str(config.get("data_dir") or "").removeprefix("./").strip("/")
    base = f"{folder}/" if folder else ""
    files, patterns = list[StatedFile](), list[_Pattern]()
    for of, stated in _paths(config.get("data_files")):
        split = _checked_split(name, of)
        place, path = f"data_files of split {split}", base + stated.removeprefix("./")
        if "://" in path:
            _refuse(name, f"{place}: {shown(path[:200])} is outside the version's folder; list files in that folder")
        if _WILDCARDS.search(path) is None:
            files.append(StatedFile(name=path, place=place, split=split))
        else:
            patterns.append(_Pattern.of(name, place, split, path))
    if len(patterns) > MAX_PATTERNS:
        _refuse(name, f"data_files has more than {MAX_PATTERNS} patterns; write fewer, such as data/train-*")
    is_found = bool(patterns) or not files
    if is_found and not totals:
        _refuse(name, f"it states no num_examples for a split, so it is unknown when all files are uploaded; {_FIX}")
    find = _Finder(source=name, patterns=patterns, base=base).find if is_found else None
    return HubList(files=files, totals=totals, find=find)


def _checked_split(name: str, split: object) -> str:
    if not isinstance(split, str) or _SPLIT.fullmatch(split) is None:
        _refuse(name, f"{shown(repr(split)[:80])} cannot be a split: use at most 64 letters, digits, _ and .")
    return split


def _splits(info: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """Return the splits: a list in README.md, members of an object in dataset_infos.json."""
    splits = info.get("splits") or ()
    return splits.values() if isinstance(splits, dict) else splits


def _paths(data_files: Any) -> Iterator[tuple[str, str]]:
    """Yield split and path: from one path, a list of paths, a list of splits with paths, or an object of them."""
    if not data_files:
        return
    if isinstance(data_files, dict):
        data_files = [{"split": split, "path": path} for split, path in data_files.items()]
    for entry in data_files if isinstance(data_files, list) else [data_files]:
        split, path = (entry["split"], entry["path"]) if isinstance(entry, dict) else ("train", entry)
        yield from ((str(split), str(each)) for each in (path if isinstance(path, list) else [path]))


@dataclass(frozen=True)
class _Pattern:
    """A pattern of paths: ``*`` stays within a folder, ``**`` stands for any folders."""

    split: str
    place: str
    parts: tuple[Callable[[str], object] | None, ...]
    """Tests of folders and of the file's name; None for ``**``."""

    @classmethod
    def of(cls, source: str, place: str, split: str, text: str) -> _Pattern:
        """Read a pattern. Raises FileListError."""
        if len(text) > MAX_NAME_CHARS:
            _refuse(source, f"{place}: a pattern has at most {MAX_NAME_CHARS} characters")
        parts = [None if part == "**" else re.compile(fnmatch.translate(part)).match for part in text.split("/")]
        if parts[-1] is None:
            parts.append(re.compile("").match)  # any file below
        return cls(split, place, tuple(parts))

    def matches(self, folders_and_name: Sequence[str]) -> bool:
        """Whether a path matches, in steps that are bounded by the product of both lengths."""
        reached, end = {0}, len(folders_and_name)
        for part in self.parts:
            if part is None:
                reached = set(range(min(reached), end + 1)) if reached else reached
            else:
                reached = {at + 1 for at in reached if at < end and part(folders_and_name[at])}
        return end in reached


@dataclass(frozen=True, kw_only=True)
class _Finder:
    """Finds the files of each split, by patterns or by the Hub's conventions."""

    source: str
    patterns: Sequence[_Pattern]
    base: str
    """Folder of all files, with a slash, or nothing."""

    def find(self, names: Iterable[str]) -> Iterator[StatedFile]:
        """Yield the files that are found among these. Raises FileListError for a file that matches two splits."""
        found = self._by_patterns(names) if self.patterns else self._by_conventions(names)
        for name, split, place in found:
            yield StatedFile(name=name, place=place, split=split)

    def _by_patterns(self, names: Iterable[str]) -> Iterator[tuple[str, str, str]]:
        for name in names:
            parts = name.split("/")
            matching = {pattern.split: pattern.place for pattern in self.patterns if pattern.matches(parts)}
            if len(matching) > 1:
                both = " and in ".join(matching.values())
                _refuse(self.source, f"{shown(name)} is in {both}; write patterns that match it once")
            yield from ((name, split, place) for split, place in matching.items())

    def _by_conventions(self, names: Iterable[str]) -> Iterator[tuple[str, str, str]]:
        """Yield files by the first convention that finds one: ``data/train-00000-of-N``, folders, names, any."""
        paths = {name: name.removeprefix(self.base) for name in names if name.startswith(self.base)}
        place = "its splits, by the names of files"
        for convention in (_sharded, _by_folder, _by_name, lambda _: "train"):
            found = {name: split for name, path in paths.items() if (split := convention(path)) is not None}
            if found:
                yield from ((name, split, place) for name, split in found.items())
                return


def _sharded(path: str) -> str | None:
    match = _SHARDED.fullmatch(path)
    return match["split"] if match else None


def _by_folder(path: str) -> str | None:
    return _keyword(word for folder in path.split("/")[:-1] for word in _SEPARATORS.split(folder))


def _by_name(path: str) -> str | None:
    return _keyword(_SEPARATORS.split(path.rpartition("/")[2])[:-1])


def _keyword(words: Iterable[str]) -> str | None:
    return next((SPLIT_WORDS[word] for word in words if word in SPLIT_WORDS), None)
