"""Why: the story of a version, a run or a blob in order, and what is awaited now."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from function_app.domain.errors import NotFoundError
from function_app.domain.records import DatasetVersion, HistoryEntry
from function_app.domain.shard_paths import NotAShardError, ShardPlace, shard_place
from function_app.explain.pending import awaited_of_blob, awaited_of_run, awaited_of_version
from function_app.services import Services

MAX_LINES = 2000
"""Of an answer; the newest are kept, and the others are counted."""
MAX_RUNS = 50
"""Whose stories are told with their version's."""

Kind = Literal["version", "run", "blob"]


@dataclass(frozen=True, kw_only=True)
class Story:
    """Everything on record about one thing, oldest first."""

    subject: str
    kind: Kind
    lines: tuple[HistoryEntry, ...]
    num_omitted: int
    awaited: tuple[str, ...]


def why(subject: str, services: Services) -> Story:
    """Tell the story of ``dataset/version``, a run id or a blob's path. Raises NotFoundError."""
    parts = subject.strip("/").split("/")
    if len(parts) == 1:
        return _of_run(parts[0], services)
    if len(parts) == 2:  # noqa: PLR2004 (a dataset and a version)
        return _of_version(DatasetVersion(dataset=parts[0], version=parts[1]), services)
    return _of_blob("/".join(parts), services)


def _of_run(run_id: str, services: Services) -> Story:
    run, lines = services.ledger.run(run_id), services.ledger.history(run_id)
    if run is None and not lines:
        raise NotFoundError(
            f"nothing is on record about a run {run_id}; a version is asked for as <dataset>/<version>, a blob as "
            "<dataset>/<version>/<shard>"
        )
    return _story(run_id, "run", lines, () if run is None else awaited_of_run(run, services))


def _of_version(version: DatasetVersion, services: Services) -> Story:
    """Tell a version's own lines, those of its blobs, and those of its runs, as one story."""
    ledger, lines = services.ledger, services.ledger.history(str(version))
    lines = lines + ledger.history_below(f"{version}/", limit=MAX_LINES)
    for run in ledger.runs(limit=MAX_RUNS, dataset=version.dataset):
        if run.dataset_version == version:
            lines = lines + ledger.history(run.run_id)
    try:
        awaited = tuple(awaited_of_version(version, services))
    except NotFoundError as error:
        if not lines:
            raise
        awaited = (str(error),)
    return _story(str(version), "version", lines, awaited)


def _of_blob(path: str, services: Services) -> Story:
    lines = services.ledger.history(path)
    try:
        place = shard_place(path, services.pipelines)
    except NotAShardError as error:
        if not lines:  # uploads that are nobody's shards are counted, and have no story
            raise NotFoundError(f"{path} is no shard that anybody waits for: {error}") from error
        place = None
    if not lines and not _is_expected(place, path, services):
        raise NotFoundError(f"nothing is on record about a blob {path}, and no such blob is in the container now")
    return _story(path, "blob", lines, awaited_of_blob(path, place, services))


def _is_expected(place: ShardPlace | None, path: str, services: Services) -> bool:
    """Whether a blob of which nobody has heard lies there, or is one that its version still lacks."""
    known = place is not None and place.shard.num_shards == services.ledger.split_sizes(place.dataset_version).get(
        place.shard.split
    )
    return known or services.shards.facts(path) is not None


def _story(subject: str, kind: Kind, lines: Iterable[HistoryEntry], awaited: Iterable[str]) -> Story:
    told = sorted(lines, key=lambda line: line.at)
    return Story(
        subject=subject,
        kind=kind,
        lines=tuple(told[-MAX_LINES:]),
        num_omitted=max(0, len(told) - MAX_LINES),
        awaited=tuple(awaited),
    )
