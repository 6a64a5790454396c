"""Compare the shards of a folder with the list of their version, if the pipeline's layout has one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.validate.judging import Judged
from shard_validation import Reason, ReasonCode
from shard_validation.delta_log import LOG_FOLDER, MAX_LOG_BYTES, TableVersion, read_log
from shard_validation.file_lists import MAX_LIST_BYTES, FileList, FileListError, read_file_list, reason_against
from shared.safe_text import shown
from shared.shard_names import ShardName, ShardNameError

if TYPE_CHECKING:
    from function_app.config.layouts import Layout
    from function_app.config.pipelines import Data


def read_list(arguments: Sequence[str], layout: Layout) -> FileList | None:
    """Return the list in one of these folders; None if the layout has none. Raises click.UsageError."""
    if layout.kind == "delta":
        table = read_table([Path(argument) for argument in arguments])
        if table is None:
            raise click.UsageError(f"{LOG_FOLDER}, the log of the Delta table, is in none of the folders.")
        return table
    if layout.kind != "manifest":
        return None
    found = [path for argument in arguments if (path := Path(argument) / layout.manifest).is_file()]
    if not found:
        raise click.UsageError(
            f"{layout.manifest}, the list of the version's files, is in none of the folders: write it, or leave out "
            "--complete."
        )
    try:
        with found[0].open("rb") as file:
            return read_file_list(layout.manifest, file.read(MAX_LIST_BYTES + 1))
    except (OSError, FileListError) as error:
        raise click.UsageError(str(error)) from error


def read_table(folders: Sequence[Path]) -> TableVersion | None:
    """Return the newest version of the Delta table in one of these folders; None if there is none.

    Raises click.UsageError for a log or a table that cannot be read.
    """
    for folder in folders:
        log = {f"{LOG_FOLDER}/{path.name}": path for path in sorted((folder / LOG_FOLDER).glob("*"))}
        try:
            found = read_log({name: path.stat().st_size for name, path in log.items()}, _content_of(log))
        except (OSError, FileListError) as error:
            raise click.UsageError(str(error)) from error
        if found is not None:
            newest = found.newest()
            if problems := [*newest.problems, *filter(None, [found.problem])]:
                raise click.UsageError(f"{LOG_FOLDER}: version {newest.version}: {problems[0]}")
            return newest
    return None


def _content_of(files: Mapping[str, Path]) -> Callable[[str], bytes]:
    def read(name: str) -> bytes:
        with files[name].open("rb") as file:
            return file.read(MAX_LOG_BYTES + 1)

    return read


@dataclass(frozen=True, kw_only=True)
class Listed:
    """The files that a list selects."""

    stated: FileList
    shards: Mapping[str, ShardName]
    """Those that the pipeline asks for, by their names."""
    problems: Sequence[str]
    """What is wrong with the list, in words."""

    def read(self, name: str) -> ShardName:
        """Return the shard of this name. Raises ShardNameError."""
        if name not in self.shards:
            raise ShardNameError(f"{name}: {self.stated.source} does not name it, or not as a file of the pipeline")
        return self.shards[name]


def listed_files(stated: FileList, names: Iterable[str], data: Data) -> Listed:
    """Return those of the files that a list selects. Raises click.UsageError."""
    try:
        files = stated.among(names)
    except FileListError as error:
        raise click.UsageError(str(error)) from error
    shards, problems = data.layout.asked(files.values(), data.splits)
    problems = [f"{stated.source}: {problem}" for problem in problems]
    return Listed(stated=stated, shards=shards, problems=problems)


def differences(every: Sequence[Judged], listed: Listed) -> list[Reason]:
    """Return the differences from the list: files that differ, are missing or have no split, and record counts."""
    stated = listed.stated
    reasons = [
        reason
        for judged in every
        if (verdict := judged.verdict) is not None
        and (
            reason := reason_against(
                stated,
                judged.shard.name,
                size_bytes=verdict.size_bytes,
                num_records=verdict.num_records,
                checksums={"crc32c": verdict.crc32c, **verdict.digests},
            )
        )
    ]
    there = {judged.shard.name: judged for judged in every}
    reasons += [_reason(ReasonCode.DIFFERS_FROM_LIST, stated.source, problem) for problem in listed.problems]
    missing = [name for name in listed.shards if name not in there]
    for split in {} if missing else dict.fromkeys(shard.split for shard in listed.shards.values()):
        every_verdict = [there[name].verdict for name, shard in listed.shards.items() if shard.split == split]
        verdicts = [verdict for verdict in every_verdict if verdict is not None]
        total = sum(verdict.num_records for verdict in verdicts)
        sizes = (sum(one.statistics.num_bytes for one in verdicts), sum(one.size_bytes for one in verdicts))
        if problem := stated.wrong_total(split, total, sizes):
            reasons.append(_reason(ReasonCode.DIFFERS_FROM_LIST, stated.source, f"{stated.source}: {problem}"))
    return reasons + [_missing(name, stated) for name in missing]


def _missing(name: str, stated: FileList) -> Reason:
    message = f"{shown(name)}: is missing; {stated.source} names it in {stated.files[name].place}"
    return _reason(ReasonCode.SET_SHARD_MISSING, name, message)


def _reason(code: ReasonCode, shard: str, message: str) -> Reason:
    return Reason(code=code, shard=shard, message=message)
