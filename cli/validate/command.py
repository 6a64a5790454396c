"""``landfall validate``. Imports neither azure nor the function app, except for URLs and --pipeline."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.progress import progress_bar
from cli.validate.inputs import ShardInput, find_counts, find_inputs
from cli.validate.judging import Judged, judge_all
from cli.validate.listed import differences, listed_files, read_list
from shard_validation import (
    MAX_COUNTS_BYTES,
    CountsError,
    DataRequirements,
    Reason,
    ReasonCode,
    check_name,
    check_set,
    read_counts,
)
from shard_validation.sets import WARNINGS, VersionStatistics
from shared.configuration import misfits
from shared.manifest import Manifest, ManifestShard
from shared.safe_text import counted, one_line, readable_bytes, shown
from shared.shard_names import ShardName, ShardNameError, parse_shard_name

if TYPE_CHECKING:
    from function_app.config.pipelines import Data

ReadName = Callable[[str], ShardName]
"""Reads the path of a shard within its version. Raises ShardNameError."""

REJECTED = 1
"""Exit status where a shard or the set was rejected; click's own for wrong usage is 2."""
MAX_LISTED = 10
"""Reasons per shard that are printed for people; --json prints more."""
MAX_JOBS = 64


@click.command(epilog="Example: landfall validate shards --complete --pipeline pipelines/digits.yaml")
@click.argument("shards", nargs=-1, required=True, metavar="PATH|URL ...")
@click.option(
    "--pipeline",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Pipeline file whose requirements on the data are checked too (default: check integrity only).",
)
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object per shard, each on its own line.")
@click.option("--statistics", is_flag=True, help="Add statistics of the data; needs --json.")
@click.option(
    "--complete", "is_set", is_flag=True, help="Also check that the shards together form a complete version."
)
@click.option(
    "--processes",
    "jobs",
    type=click.IntRange(1, MAX_JOBS),
    metavar="N",
    default=min(os.cpu_count() or 1, MAX_JOBS),
    show_default="one per core",
    help="Number of processes that validate at the same time.",
)
def validate(
    shards: tuple[str, ...], pipeline: Path | None, jobs: int, *, is_json: bool, statistics: bool, is_set: bool
) -> None:
    """Check shards as the function app does after an upload: files, folders of files, and URLs of blobs.

    A blob's URL may contain a signature. Otherwise the blob is opened with the environment variable DataStorage (a
    connection string), or with your sign-in by `az login`.

    Exit status: 0 everything was accepted; 1 something was rejected; 2 wrong usage.
    """
    data = load_data(pipeline)
    requirements = None if data is None else data.requirements()
    read = parse_shard_name if data is None else partial(data.layout.shard, splits=data.splits)
    inputs = find_inputs(shards, None if data is None else data.layout)
    every = []
    with (
        progress_bar(f"validating {counted(len(inputs), 'shard')}", _total_bytes(inputs), counts="bytes") as step,
        contextlib.closing(judge_all(inputs, requirements, num_processes=jobs, progress=step)) as judging,
    ):
        for judged in judging:
            every.append(judged)
            _print(as_json(judged, read, with_statistics=statistics) if is_json else as_text(judged, read))
    stated = read_list(shards, data.layout) if is_set and data is not None else None
    listed = None
    if stated is not None and data is not None:
        listed = listed_files(stated, [judged.shard.name for judged in every], data)
        read = listed.read
    of_set = [judged for judged in every if listed is None or judged.shard.name in listed.shards]
    reasons = set_reasons(of_set, requirements, find_counts(shards), read) if is_set else []
    reasons += differences(every, listed) if listed is not None else []
    unfit = option_misfits(pipeline, every, read) if is_set and pipeline is not None else []
    if is_set:
        click.echo(set_as_json(reasons, unfit) if is_json else set_as_text(reasons, unfit))
    if not is_json and len(every) > 1:
        click.echo(summary(every))
    if unfit or refusals(reasons) or not all(judged.accepted for judged in every):
        raise click.exceptions.Exit(REJECTED)


def _print(line: str) -> None:
    """Print a line at once. Not by click.echo, which would bypass the stdout that rich sets while it shows a bar."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def load_data(pipeline: Path | None) -> Data | None:
    """Return what a pipeline file says of the data. Raises click.UsageError for a wrong file."""
    if pipeline is None:
        return None
    from function_app.config.pipeline_files import read_pipeline
    from function_app.domain.errors import PipelineError

    try:
        return read_pipeline(pipeline).data
    except PipelineError as error:
        raise click.UsageError(str(error)) from error


def set_reasons(
    every: Sequence[Judged],
    requirements: DataRequirements | None,
    counts: Path | None,
    read: ReadName = parse_shard_name,
) -> list[Reason]:
    """Return the reasons against the accepted shards as a version; rejected ones count as missing."""
    reasons = [reason for judged in every if (reason := check_name(judged.shard.name, read)) is not None]
    members, formats = [], {}
    for judged in every:
        if (member := _member(judged, read)) is not None and judged.verdict is not None:
            members.append(member)
            formats[member.name] = judged.verdict.content_format
    members = list(_numbered(members))
    stated = None
    if counts is not None:
        try:
            with counts.open("rb") as file:
                stated = read_counts(counts.name, file.read(MAX_COUNTS_BYTES + 1))
        except (CountsError, OSError) as error:
            reasons.append(Reason(code=ReasonCode.SET_COUNTS_UNREADABLE, shard=counts.name, message=str(error)))
    return reasons + check_set(members, requirements or DataRequirements(), counts=stated, formats=formats)


def option_misfits(pipeline: Path, every: Sequence[Judged], read: ReadName) -> list[str]:
    """Return why the pipeline's training could not use these shards, based on their statistics.

    Without a clusters.yaml in the same folder, the number of processes that share the records is unknown.
    """
    from function_app.config.clusters import CLUSTERS_FILE
    from function_app.config.pipeline_files import load_pipeline
    from function_app.config.pipelines import is_own_script
    from function_app.domain.errors import PipelineError

    if not (pipeline.parent / CLUSTERS_FILE).is_file():
        return []
    try:
        loaded = load_pipeline(pipeline)
    except PipelineError as error:
        return list(error.problems)
    members = [member for judged in every if (member := _member(judged, read)) is not None]
    if is_own_script(loaded.train.script) or loaded.data.is_synthetic or not members:
        return []
    statistics = VersionStatistics.of(
        (member.split, judged.verdict.statistics)
        for judged in every
        if judged.verdict is not None and (member := _member(judged, read)) is not None
    )
    manifest = Manifest(
        dataset=loaded.dataset,
        version="",
        generation=1,
        fingerprint="",
        data_format=loaded.data.format,
        features=loaded.data.feature_specs(),
        shards=tuple(_numbered(members)),
        statistics=statistics.to_json(),
    )
    world_size = loaded.train.num_nodes * loaded.machines.processes_per_node
    found = misfits(loaded.options, manifest, world_size=world_size)
    return [f"{pipeline.name}: train.options.{problem}" for problem in found]


def _numbered(members: Sequence[ManifestShard]) -> Iterator[ManifestShard]:
    """Yield the shards; those without ``-of-N`` get their indices by name, as at the closing."""
    for split in sorted({member.split for member in members}):
        own = sorted((member for member in members if member.split == split), key=lambda member: member.name)
        for index, member in enumerate(own):
            yield member if member.num_shards else replace(member, index=index, num_shards=len(own))


def _member(judged: Judged, read: ReadName) -> ManifestShard | None:
    if judged.verdict is None or not judged.accepted:
        return None
    try:
        name = read(judged.shard.name)
    except ShardNameError:
        return None
    return ManifestShard(
        split=name.split,
        index=name.index,
        num_shards=name.num_shards,
        name=name.name,
        size_bytes=judged.verdict.size_bytes,
        crc32c=judged.verdict.crc32c,
        num_records=judged.verdict.num_records,
    )


def _total_bytes(inputs: Sequence[ShardInput]) -> int | None:
    """Return the size of all shards; None if some are blobs, whose sizes would cost a request each."""
    if any(shard.is_url for shard in inputs):
        return None
    total = 0
    for shard in inputs:
        with contextlib.suppress(OSError):  # it is gone, or a broken link: validating it reports that
            total += Path(shard.location).stat().st_size
    return total


def as_json(judged: Judged, read: ReadName = parse_shard_name, *, with_statistics: bool = False) -> str:
    """Return one line for one shard."""
    verdict = judged.verdict
    members: dict[str, Any] = {
        "shard": judged.shard.label,
        "verdict": "accepted" if judged.accepted else "rejected",
        "num_records": verdict.num_records if verdict else 0,
        "size_bytes": verdict.size_bytes if verdict else 0,
        "crc32c": verdict.crc32c if verdict else None,
        "reasons": [_reason(r) for r in judged.reasons],
        "num_reasons": verdict.num_reasons if verdict else 1,
        "data_format": verdict.data_format if verdict else None,
        "compression": verdict.compression if verdict else "",
        "name_problem": _name_problem(judged, read),
    }
    if with_statistics:
        members["statistics"] = verdict.statistics.to_json() if verdict else None
    return json.dumps(members)


def set_as_json(reasons: Sequence[Reason], unfit: Sequence[str] = ()) -> str:
    """Return the line for all shards together."""
    members = {
        "set": True,
        "verdict": "rejected" if refusals(reasons) else "accepted",
        "reasons": [r.to_json() for r in reasons],
        "misfits": list(unfit),
    }
    return json.dumps(members)


def as_text(judged: Judged, read: ReadName = parse_shard_name) -> str:
    """Return the lines for one shard: the verdict, then the reasons."""
    verdict = judged.verdict
    if verdict is None:
        return f"UNREADABLE  {shown(judged.shard.label)}\n{_listed(judged.reasons)}"
    what = " ".join(filter(None, (verdict.data_format, verdict.compression))) or "unknown format"
    facts = f"{verdict.num_records:,} records, {readable_bytes(verdict.size_bytes)}, {what}, CRC32C {verdict.crc32c}"
    if verdict.accepted:
        problem = _name_problem(judged, read)
        ignored = f"\n  the function app would ignore it: {problem}" if problem else ""
        return f"accepted    {shown(judged.shard.label)}  ({facts}){ignored}"
    listed = judged.reasons[:MAX_LISTED]
    more = verdict.num_reasons - len(listed)
    rest = f"\n  … and {more:,} more" if more else ""
    return f"REJECTED    {shown(judged.shard.label)}  ({facts})\n{_listed(listed)}{rest}"


def _name_problem(judged: Judged, read: ReadName) -> str | None:
    """Return why the function app would not look at a file of this name; only --complete rejects it."""
    reason = check_name(judged.shard.name, read)
    return None if reason is None else reason.message


def refusals(reasons: Sequence[Reason]) -> list[Reason]:
    """Return the reasons for which a version is refused; the others are warnings."""
    return [reason for reason in reasons if reason.code not in WARNINGS]


def set_as_text(reasons: Sequence[Reason], unfit: Sequence[str] = ()) -> str:
    """Return the lines for all shards together, and for what the training could not do with them."""
    verdict = "REJECTED    all shards together" if refusals(reasons) else "accepted    all shards together"
    warned = ", with warnings" if reasons and not refusals(reasons) else ""
    problems = ["UNFIT       for the training", *(f"  {one_line(text)}" for text in unfit)] if unfit else []
    return "\n".join([f"{verdict}{warned}", *([_listed(reasons)] if reasons else []), *problems])


def summary(every: Sequence[Judged]) -> str:
    """Return the last line for several shards."""
    num_accepted = sum(judged.accepted for judged in every)
    num_bytes = sum(judged.verdict.size_bytes for judged in every if judged.verdict)
    return f"{num_accepted} of {len(every)} shards accepted, {readable_bytes(num_bytes)} read"


def _listed(reasons: Sequence[Reason]) -> str:
    return "\n".join(f"  {r.code}: {r.message}" for r in reasons)


def _reason(reason: Reason) -> dict[str, Any]:
    members = reason.to_json()
    del members["shard"]
    return members
