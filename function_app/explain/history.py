"""Explain a version, a run or a blob: its history in order, and what it waits for now."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from function_app.domain.errors import NotFoundError, PipelineOutOfServiceError
from function_app.domain.records import DatasetVersion, HistoryEntry
from function_app.domain.shard_paths import NotAShardError, ShardPlace, shard_place
from function_app.explain.pending import awaited_of_blob, awaited_of_run, awaited_of_version
from function_app.services import Services

MAX_LINES = 2000
"""Largest number of history entries in an answer; the newest are kept, the others are counted."""
MAX_RUNS = 50
"""Largest number of runs whose history is part of their version's."""

Kind = Literal["version", "run", "blob"]


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """The history of one subject, oldest entry first, and what it waits for."""

    subject: str
    kind: Kind
    lines: tuple[HistoryEntry, ...]
    num_omitted: int
    awaited: tuple[str, ...]


def why(subject: str, services: Services) -> Explanation:
    """Explain ``dataset/version``, a run id or a blob's path. Raises NotFoundError."""
    parts = subject.strip("/").split("/")
    if len(parts) == 1:
        return _of_run(parts[0], services)
    if len(parts) == 2:  # noqa: PLR2004 (a dataset and a version)
        return _of_version(DatasetVersion(dataset=parts[0], version=parts[1]), services)
    return _of_blob("/".join(parts), services)


def _of_run(run_id: str, services: Services) -> Explanation:
    run, lines = services.ledger.run(run_id), services.ledger.history(run_id)
    if run is None and not lines:
        raise NotFoundError(
            f"run {run_id} is unknown; name a version as <dataset>/<version>, a blob as <dataset>/<version>/<shard>"
        )
    return _explanation(run_id, "run", lines, () if run is None else awaited_of_run(run, services))


def _of_version(version: DatasetVersion, services: Services) -> Explanation:
    """Merge the histories of a version, its blobs and its runs."""
    ledger, lines = services.ledger, services.ledger.history(str(version))
    lines = lines + ledger.history_below(f"{version}/", limit=MAX_LINES)
    for run in ledger.runs(limit=MAX_RUNS, dataset=version.dataset):
        if run.dataset_version == version:
            lines = lines + ledger.history(run.run_id)
    try:
        awaited = tuple(awaited_of_version(version, services))
    except (NotFoundError, PipelineOutOfServiceError) as error:
        if not lines:
            raise
        awaited = (str(error),)
    return _explanation(str(version), "version", lines, awaited)


def _of_blob(path: str, services: Services) -> Explanation:
    lines = services.ledger.history(path)
    try:
        place = shard_place(path, services.pipelines)
    except NotAShardError as error:
        if not lines:  # uploads that match no pipeline are only counted
            raise NotFoundError(f"{path} matches no pipeline: {error}") from error
        place = None
    if not lines and not _is_expected(place, path, services):
        raise NotFoundError(f"blob {path} is unknown: it has no history, and no such blob is in the container now")
    return _explanation(path, "blob", lines, awaited_of_blob(path, place, services))


def _is_expected(place: ShardPlace | None, path: str, services: Services) -> bool:
    """Whether a blob without a history exists, or is a shard that its version still lacks."""
    if place is not None and place.shard.num_shards:
        sizes = services.ledger.split_sizes(place.dataset_version)
        if sizes.get(place.shard.split) == place.shard.num_shards:
            return True
    return services.shards.facts(path) is not None


def _explanation(subject: str, kind: Kind, lines: Iterable[HistoryEntry], awaited: Iterable[str]) -> Explanation:
    ordered = sorted(lines, key=lambda line: line.at)
    return Explanation(
        subject=subject,
        kind=kind,
        lines=tuple(ordered[-MAX_LINES:]),
        num_omitted=max(0, len(ordered) - MAX_LINES),
        awaited=tuple(awaited),
    )
