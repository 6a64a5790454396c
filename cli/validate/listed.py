"""The shards of a folder beside the list of their version, where the pipeline's layout has one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.validate.judging import Judged
from shard_validation import Reason, ReasonCode
from shard_validation.delta_log import LOG_FOLDER, MAX_LOG_BYTES, TableVersion, read_log
from shard_validation.file_lists import MAX_LIST_BYTES, FileList, FileListError, read_file_list, reason_against
from shared.safe_text import shown
from shared.shard_names import ShardNameError

if TYPE_CHECKING:
    from function_app.config.layouts import Layout


def read_list(arguments: Sequence[str], layout: Layout) -> FileList | None:
    """Return the list in one of these folders; None where the layout has none. Raises click.UsageError."""
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
            "--set."
        )
    try:
        with found[0].open("rb") as file:
            return read_file_list(layout.manifest, file.read(MAX_LIST_BYTES + 1))
    except (OSError, FileListError) as error:
        raise click.UsageError(str(error)) from error


def read_table(folders: Sequence[Path]) -> TableVersion | None:
    """Return the newest version of the Delta table in one of these folders; None where there is none.

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


def differences(every: Sequence[Judged], stated: FileList, layout: Layout, splits: Sequence[str]) -> list[Reason]:
    """Return what is not as the list states: files that differ, that are missing, and that are of no split."""
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
    there = {judged.shard.name for judged in every}
    return reasons + [
        _missing(name, stated) for name in stated.files if name not in there and _is_asked(name, layout, splits)
    ]


def _missing(name: str, stated: FileList) -> Reason:
    message = f"{shown(name)}: is not there; {stated.source} names it in {stated.files[name].place}"
    return Reason(code=ReasonCode.SET_SHARD_MISSING, shard=name, message=message)


def _is_asked(name: str, layout: Layout, splits: Sequence[str]) -> bool:
    from function_app.config.layouts import NoSplitError

    try:
        layout.shard(name, splits)
    except NoSplitError:
        return True
    except ShardNameError:
        return False
    return True
