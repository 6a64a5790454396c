"""The shards of a folder beside the list of their version, where the pipeline's layout has one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.validate.judging import Judged
from shard_validation import Reason, ReasonCode
from shard_validation.file_lists import MAX_LIST_BYTES, FileList, FileListError, read_file_list, reason_against
from shared.safe_text import shown
from shared.shard_names import ShardNameError

if TYPE_CHECKING:
    from function_app.config.layouts import Layout


def read_list(arguments: Sequence[str], layout: Layout) -> FileList | None:
    """Return the list in one of these folders; None where the layout has none. Raises click.UsageError."""
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
