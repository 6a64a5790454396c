"""The log of a Delta table: which files each of its versions has, with their sizes and numbers of records.

Writers delete old commits after a while; such a log is read from a checkpoint, which has the state of a version.
Source of the format: delta-io/delta, PROTOCOL.md. The log is read here, not with the package `deltalake`, because
untrusted content must be bounded before it is loaded into memory. Tests compare the two.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote

from shard_validation.delta_checkpoint import read_actions
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
"""Newest versions that are considered; older ones that were not processed yet are skipped."""
_COMMIT = re.compile(rf"{LOG_FOLDER}/(\d{{20}})\.json")
_CHECKPOINT = re.compile(rf"{LOG_FOLDER}/(\d{{20}})\.checkpoint(?:\.(\d{{10}})\.(\d{{10}}))?\.parquet")
_READER_VERSION = 3
_HARMLESS = frozenset({"columnMapping", "deletionVectors", "timestampNtz", "vacuumProtocolCheck"})
"""Reader features that tables may list. The first two are refused if the table uses them."""


@dataclass(frozen=True, kw_only=True)
class Commit:
    """What a commit of a table states."""

    version: int
    added: Mapping[str, StatedFile] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()
    changes_data: bool = False
    """Whether it changes the records; others, such as OPTIMIZE, only move them to other files."""
    problems: Mapping[str, str | None] = field(default_factory=dict)
    """Path or action → why files cannot be read as they are from this commit on; None if they can."""


@dataclass(frozen=True, kw_only=True)
class TableVersion(FileList):
    """The files of one version of a table."""

    version: int
    changes_data: bool
    """Whether its records may differ from those of the version that it was compared with."""
    is_newest: bool = False
    """Whether the log has no later one."""
    problems: Sequence[str] = ()
    """Why its files cannot be read as they are."""


@dataclass(frozen=True, kw_only=True)
class TableLog:
    """The log of a table, as far as it was read."""

    commits: Sequence[Commit]
    """In order and without a gap. The first one adds all files that the table has at that time."""
    problem: str | None = None
    """Why later commits cannot be read; None if there are none."""

    def next_after(
        self, version: int | None, is_passed_over: Callable[[TableVersion, Mapping[str, StatedFile]], bool]
    ) -> TableVersion:
        """Return the first table version after one whose files differ from that one's, otherwise the newest.

        ``is_passed_over`` decides whether to skip a version that is not the newest; it also gets the newest one's
        files.
        """
        newest = self.newest()
        since = max(-1 if version is None else version, newest.version - MAX_WAITING)
        # Nothing is known of commits between the version and the checkpoint with which the log begins.
        seen, changes_data = dict[str, int | None](), version is None or self.commits[0].version > version + 1
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
        # If the files are the same, this closing differs because a file was overwritten in place.
        return replace(newest, changes_data=changes_data or _sizes(newest) == seen)

    def newest(self) -> TableVersion:
        """Return the newest version."""
        return replace(deque(self._states(), maxlen=1)[0], is_newest=True)

    def at(self, version: int) -> TableVersion | None:
        """Return one version; None if the log does not have it."""
        state = next((state for state in self._states() if state.version == version), None)
        return None if state is None else replace(state, is_newest=version == self.commits[-1].version)

    def _states(self) -> Iterator[TableVersion]:
        """Yield each version. Its files are valid only until the next version is requested."""
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
    """Whether a path within a table is that of a commit, or of a checkpoint."""
    return any(pattern.fullmatch(path) for pattern in (_COMMIT, _CHECKPOINT))


def read_log(sizes: Mapping[str, int], read: Callable[[str], bytes]) -> TableLog | None:
    """Read the log of a table. ``sizes`` are those of its files by path within the table, which ``read`` reads.

    It is read from its first commit; if that is gone or too many commits back, from a checkpoint. Returns None if
    there is neither. Raises FileListError.
    """
    commits = {int(found[1]): path for path in sizes if (found := _COMMIT.fullmatch(path))}
    checkpoints, missing = _checkpoints(sizes)
    if not (commits or checkpoints or missing):
        return None
    starts = sorted({0} & commits.keys() | checkpoints.keys())
    if not starts:
        raise FileListError(_absence_of_start(missing))
    start, end = _bounds(starts, commits, checkpoints, sizes)
    first = []
    if start not in commits or start > 0:
        first = [_read_checkpoint(start, checkpoints[start], commits, read)]
    later = [_read_commit(v, commits[v], read(commits[v])) for v in range(start + len(first), end + 1)]
    problem = f"{_path(end + 1)} is missing, but later commits exist" if end < max(commits, default=end) else None
    return TableLog(commits=[*first, *later], problem=problem)


def _checkpoints(paths: Iterable[str]) -> tuple[dict[int, list[str]], str | None]:
    """Return the files of each checkpoint that is whole, by its version, and a part that another one lacks."""
    found, whole, missing = dict[tuple[int, int], dict[int, str]](), dict[int, list[str]](), None
    for path in paths:
        if match := _CHECKPOINT.fullmatch(path):
            version, part, num_parts = (int(number or 1) for number in match.groups())
            found.setdefault((version, num_parts), {})[part] = path
    for (version, num_parts), parts in sorted(found.items()):
        absent = next((part for part in range(1, num_parts + 1) if part not in parts), None)
        if absent is None:
            whole[version] = [parts[part] for part in range(1, num_parts + 1)]
        else:
            missing = f"{LOG_FOLDER}/{version:020d}.checkpoint.{absent:010d}.{num_parts:010d}.parquet"
    return whole, missing


def _absence_of_start(missing_part: str | None) -> str:
    if missing_part is not None:
        return f"{missing_part}, a part of the table's checkpoint, is missing; upload it"
    return f"{_path(0)}, the first commit of the table, is missing; upload it, or a checkpoint (of version 1)"


def _bounds(
    starts: Sequence[int],
    commits: Mapping[int, str],
    checkpoints: Mapping[int, Sequence[str]],
    sizes: Mapping[str, int],
) -> tuple[int, int]:
    """Return the start from which commits without a gap reach furthest, and the version that they reach.

    Raises FileListError if there is too much to read from every starting point.
    """
    ends = dict[int, int]()
    for version in sorted(commits, reverse=True):
        ends[version] = ends.get(version + 1, version)
    end = max(ends.get(start + 1, start) for start in starts)
    problem = None
    for start in starts:
        if ends.get(start + 1, start) == end:
            versions = range(max(start, end - MAX_COMMITS), end + 1)
            paths = [commits[version] for version in versions if version in commits]
            problem = _problem_of_size([sizes[path] for path in (*paths, *checkpoints.get(start, ()))])
            if problem is None:
                break
    if problem is not None:
        raise FileListError(f"{LOG_FOLDER}: {problem}")
    return start, end


def _problem_of_size(every: Sequence[int]) -> str | None:
    if len(every) > MAX_COMMITS:
        return f"more than {MAX_COMMITS:,} commits without a checkpoint; write one"
    if sum(every) > MAX_LOG_BYTES:
        return f"more than {MAX_LOG_BYTES >> 20} MiB without a checkpoint; write one"
    return None


def _path(version: int) -> str:
    return f"{LOG_FOLDER}/{version:020d}.json"


def _read_commit(version: int, name: str, content: bytes) -> Commit:
    actions = _Actions(version=version, name=name)
    for number, line in enumerate(content.split(b"\n"), start=1):
        if line.strip():
            _take(actions, line, f"line {number}")
    return actions.commit()


def _take(actions: _Actions, action: Mapping[str, Any] | bytes, place: str) -> None:
    """Take an action, or the JSON of one. Raises FileListError."""
    try:
        actions.take(json.loads(action) if isinstance(action, bytes) else action, place)
    except FileListError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        refuse(actions.name, place, f"it is not an action of a Delta table: {shown(repr(error)[:200])}")


def _read_checkpoint(
    version: int, paths: Iterable[str], commits: Mapping[int, str], read: Callable[[str], bytes]
) -> Commit:
    """Return a commit that adds all files of a version."""
    actions = _Actions(version=version, name=LOG_FOLDER)
    for path in paths:
        actions.name = path
        for number, action in read_actions(path, read(path)):
            _take(actions, action, f"row {number}")
            if len(actions.added) > MAX_FILES:
                raise FileListError(f"{path}: more than {MAX_FILES:,} files")
    if "protocol" not in actions.problems:
        raise FileListError(f"{actions.name}: it states no protocol, so the checkpoint is incomplete; write it again")
    # Its own commit, if it was kept, says whether the records were changed then.
    own = _read_commit(version, commits[version], read(commits[version])) if version in commits else None
    return replace(actions.commit(), changes_data=own is None or own.changes_data)


@dataclass(kw_only=True)
class _Actions:
    """The actions of one commit that add or remove files."""

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
        if action.get("sidecar"):
            refuse(self.name, place, "a checkpoint with sidecars (version 2) is not read; write one of version 1")
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
    "has a deletion vector, which trainings do not support; rewrite the file with REORG TABLE … APPLY (PURGE)"
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
        return f"the table needs readers of version {version:d}; versions up to {_READER_VERSION} are supported"
    if unknown := sorted(set(protocol.get("readerFeatures") or ()) - _HARMLESS):
        return (
            f"the table needs the reader feature {shown(str(unknown[0])[:80])}, which is not supported; write the "
            f"table without it"
        )
    return None


def _problem_of_metadata(metadata: Mapping[str, Any]) -> str | None:
    mode = (metadata.get("configuration") or {}).get("delta.columnMapping.mode", "none")
    if mode != "none":
        return (
            f"the table has a column mapping ({shown(str(mode)[:20])}), so columns have other names in its files; "
            f"write it as a new table without a mapping"
        )
    return None
