"""The log of a Delta table: which files each of its versions has, with their sizes and numbers of records.

Source of the format: delta-io/delta, PROTOCOL.md. The log is read here rather than by the package `deltalake`: it is
written by others, and has to be bounded before any of it is in memory. Tests compare the two.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote

from shard_validation.file_lists import (
    MAX_FILES,
    FileList,
    FileListError,
    StatedFile,
    problem_of_name,
    refuse,
    whole_number,
)
from shared.safe_text import shown

LOG_FOLDER = "_delta_log"
MAX_LOG_BYTES = 64 << 20
MAX_COMMITS = 1000
"""Commits that are read; `deltalake` and Spark write a checkpoint after at most 100."""
MAX_WAITING = 100
"""Versions that count: older ones, with which nothing was done yet, are passed over."""
_COMMIT = re.compile(rf"{LOG_FOLDER}/(\d{{20}})\.json")
_READER_VERSION = 3
_HARMLESS = frozenset({"columnMapping", "deletionVectors", "timestampNtz", "vacuumProtocolCheck"})
"""Reader features that tables may list. The first two are refused where they are in use."""


@dataclass(frozen=True, kw_only=True)
class Commit:
    """What a commit of a table states."""

    version: int
    added: Mapping[str, StatedFile] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()
    changes_data: bool = False
    """Whether it changes the records; others, such as OPTIMIZE, only arrange them in other files."""
    problems: Mapping[str, str | None] = field(default_factory=dict)
    """Path or action → why files cannot be read as they are from here on; None: they can."""


@dataclass(frozen=True, kw_only=True)
class TableVersion(FileList):
    """The files of one version of a table."""

    version: int
    changes_data: bool
    """Whether its records may differ from those of the version that was asked about."""
    is_newest: bool = False
    """Whether the log has no later one."""
    problems: Sequence[str] = ()
    """Why its files cannot be read as they are."""


@dataclass(frozen=True, kw_only=True)
class TableLog:
    """The log of a table, as far as it was read."""

    commits: Sequence[Commit]
    """In their order without a gap."""
    problem: str | None = None
    """Why later commits cannot be read; None where there are none."""

    def next_after(
        self, version: int | None, is_passed_over: Callable[[TableVersion, Mapping[str, StatedFile]], bool]
    ) -> TableVersion:
        """Return the first table version after one whose files differ from its files; where none does, the newest.

        ``is_passed_over`` is asked about those that are not the newest, with the files of the newest one.
        """
        newest = self.newest()
        since = max(-1 if version is None else version, newest.version - MAX_WAITING)
        seen, changes_data = dict[str, int | None](), version is None
        for state in self._states():
            changes_data |= version is not None and state.version > version and state.changes_data
            if state.version == since:
                seen = _sizes(state)
            if state.version <= since:
                continue
            if state.version == newest.version:
                break
            if _sizes(state) != seen and not is_passed_over(state, newest.files):
                return replace(state, changes_data=changes_data, files=dict(state.files))
        # With the same files, a closing is of other content: that of a file was overwritten.
        return replace(newest, changes_data=changes_data or _sizes(newest) == seen)

    def newest(self) -> TableVersion:
        """Return the newest version."""
        return replace(deque(self._states(), maxlen=1)[0], is_newest=True)

    def at(self, version: int) -> TableVersion | None:
        """Return one version; None where the log does not have it."""
        return next((state for state in self._states() if state.version == version), None)

    def _states(self) -> Iterator[TableVersion]:
        """Yield each version; its files are those of the next one as soon as that is asked for."""
        files, problems = dict[str, StatedFile](), dict[str, str | None]()
        for commit in self.commits:
            for name in commit.removed:
                files.pop(name, None)
                problems.pop(name, None)
            files.update(commit.added)
            problems.update(commit.problems)
            if len(files) > MAX_FILES:
                raise FileListError(f"{LOG_FOLDER}: version {commit.version}: more than {MAX_FILES:,} files")
            yield TableVersion(
                source=LOG_FOLDER,
                files=files,
                version=commit.version,
                changes_data=commit.changes_data,
                problems=[problem for problem in problems.values() if problem is not None],
            )


def _sizes(state: TableVersion) -> dict[str, int | None]:
    return {name: file.size_bytes for name, file in state.files.items()}


def is_of_log(path: str) -> bool:
    """Whether a path within a table is that of a commit."""
    return _COMMIT.fullmatch(path) is not None


def read_log(sizes: Mapping[str, int], read: Callable[[str], bytes]) -> TableLog | None:
    """Read the log of a table. ``sizes`` are those of its files by path within the table, which ``read`` reads.

    Returns None where there is no commit. Raises FileListError.
    """
    there = {int(found[1]): path for path in sizes if (found := _COMMIT.fullmatch(path))}
    if not there:
        return None
    versions = list(_without_gap(there))
    if not versions:
        raise FileListError(f"{_path(0)}, the first commit of the table, is not there; upload it")
    _check_size(sizes[there[version]] for version in versions)
    problem = None if len(versions) == len(there) else f"{_path(len(versions))} is not there, and later ones are"
    return TableLog(commits=[_read_commit(v, there[v], read(there[v])) for v in versions], problem=problem)


def _without_gap(there: Mapping[int, str]) -> Iterator[int]:
    version = 0
    while version in there:
        yield version
        version += 1


def _check_size(sizes: Iterable[int]) -> None:
    every = list(sizes)
    if len(every) > MAX_COMMITS:
        raise FileListError(f"{LOG_FOLDER}: more than {MAX_COMMITS:,} commits without a checkpoint; write one")
    if sum(every) > MAX_LOG_BYTES:
        raise FileListError(f"{LOG_FOLDER}: more than {MAX_LOG_BYTES >> 20} MiB without a checkpoint; write one")


def _path(version: int) -> str:
    return f"{LOG_FOLDER}/{version:020d}.json"


def _read_commit(version: int, name: str, content: bytes) -> Commit:
    actions = _Actions(version=version, name=name)
    for number, line in enumerate(content.split(b"\n"), start=1):
        if line.strip():
            place = f"line {number}"
            try:
                actions.take(json.loads(line), place)
            except FileListError:
                raise
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                refuse(name, place, f"it is no action of a Delta table: {shown(repr(error)[:200])}")
    return actions.commit()


@dataclass(kw_only=True)
class _Actions:
    """The actions of one commit that say which files there are."""

    version: int
    name: str
    added: dict[str, StatedFile] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    changes_data: bool = False
    problems: dict[str, str | None] = field(default_factory=dict)

    def take(self, action: Mapping[str, Any], place: str) -> None:
        if add := action.get("add"):
            file = self._file(add, place)
            if file.name in self.added:
                refuse(self.name, place, f"{shown(file.name)} is added twice")
            self.added[file.name] = file
            if add.get("deletionVector") is not None:
                self.problems[file.name] = f"{shown(file.name)} {_DELETION_VECTOR}"
            self.changes_data |= add.get("dataChange") is not False
        if remove := action.get("remove"):
            self.removed.add(unquote(remove["path"]))
            self.changes_data |= remove.get("dataChange") is not False
        if protocol := action.get("protocol"):
            self.problems["protocol"] = _problem_of_protocol(protocol)
        if metadata := action.get("metaData"):
            self.problems["metaData"] = _problem_of_metadata(metadata)

    def commit(self) -> Commit:
        return Commit(
            version=self.version,
            added=self.added,
            removed=frozenset(self.removed),
            changes_data=self.changes_data,
            problems=self.problems,
        )

    def _file(self, add: Mapping[str, Any], place: str) -> StatedFile:
        path = unquote(add["path"])
        if (problem := problem_of_name(path)) is not None:
            refuse(self.name, place, f"{shown(path[:200])}: {problem}")
        if add.get("size") is None:
            refuse(self.name, place, f"{shown(path)}: size is not stated")
        return StatedFile(
            name=path,
            place=f"version {self.version}",
            size_bytes=whole_number(self.name, place, "size", add["size"]),
            num_records=whole_number(self.name, place, "numRecords", _num_records(add.get("stats"))),
        )


_DELETION_VECTOR = (
    "has a deletion vector, which a training cannot follow; rewrite the file by REORG TABLE … APPLY (PURGE)"
)


def _num_records(stats: Any) -> object:
    """Return the number of records in the statistics, which writers may leave out."""
    try:
        return json.loads(stats).get("numRecords") if isinstance(stats, str) else None
    except (ValueError, AttributeError, RecursionError):
        return None


def _problem_of_protocol(protocol: Mapping[str, Any]) -> str | None:
    version = protocol["minReaderVersion"]
    if version > _READER_VERSION:
        return f"the table needs readers of version {version:d}; up to {_READER_VERSION} is known"
    if unknown := sorted(set(protocol.get("readerFeatures") or ()) - _HARMLESS):
        return (
            f"the table needs the reader feature {shown(str(unknown[0])[:80])}, which is not known; write it without"
        )
    return None


def _problem_of_metadata(metadata: Mapping[str, Any]) -> str | None:
    mode = (metadata.get("configuration") or {}).get("delta.columnMapping.mode", "none")
    if mode != "none":
        return (
            f"the table has a column mapping ({shown(str(mode)[:20])}), by which columns have other names in its "
            "files; write it as a new table without one"
        )
    return None
