"""What a dataset version has and what it is missing, split by split."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TypeVar

from function_app.config.pipelines import Pipeline
from function_app.domain.records import DatasetVersion, ShardMark, ShardRecord, ShardState
from function_app.ingest.closing import last_refusal
from function_app.ingest.layouts import SplitState, layout_of
from function_app.ports import HistoryLedger
from function_app.services import IngestServices, RunServices
from shard_validation import DataRequirements, ShardStatistics

Verdict = TypeVar("Verdict", bound=ShardRecord | ShardMark)

MAX_LISTED = 1000
"""Longest list of missing or rejected shards; the total number is always stated."""


@dataclass(frozen=True, kw_only=True)
class SplitDescription:
    """One required split."""

    split: str
    num_shards: int | None
    """None while it is unknown how many there will be."""
    accepted: int
    missing: tuple[str, ...]
    """Names of shards that have not come or were rejected, and what else is missing, in words."""
    unlisted: tuple[str, ...]
    """Files that are no part of the version, because its list does not name them."""
    rejected: tuple[ShardRecord, ...]
    num_rejected: int
    verdicts: tuple[ShardRecord | None, ...]
    """The verdict on each shard, in their order; None where there is none yet."""
    size_bytes: int
    """Size of the accepted shards; ``statistics`` cover the same shards."""
    statistics: ShardStatistics
    label: str | None
    """The feature that holds the label."""
    kinds: Mapping[str, str]
    """Feature → int64, float or bytes."""


@dataclass(frozen=True, kw_only=True)
class SplitSketch:
    """What can be said of a split of many shards at once."""

    split: str
    num_shards: int | None
    """None while it is unknown how many there will be."""
    verdicts: tuple[ShardMark | None, ...]
    """The verdict on each shard, in their order; None where there is none yet."""


def missing_shards(pipeline: Pipeline, version: DatasetVersion, services: IngestServices | RunServices) -> list[str]:
    """Return the names of shards that keep a version open, and what else does, in words."""
    return [name for state in layout_of(pipeline, version, services).splits() for name in state.missing]


def refusal_messages(version: DatasetVersion, ledger: HistoryLedger) -> tuple[str, ...]:
    """Return what was found wrong with a version as a set."""
    refusal = last_refusal(version, ledger)
    return () if refusal is None else tuple(refusal.details.get("messages", ()))


def split_descriptions(
    pipeline: Pipeline, version: DatasetVersion, services: IngestServices | RunServices
) -> Iterator[SplitDescription]:
    """Yield what there is of each split that the pipeline requires."""
    requirements = pipeline.data.requirements()
    for state in layout_of(pipeline, version, services).splits():
        yield _split(state, requirements)


def _split(state: SplitState, requirements: DataRequirements) -> SplitDescription:
    good = [row for row in state.rows if row.state is ShardState.ACCEPTED]
    rejected = sorted((row for row in state.rows if row.state is ShardState.REJECTED), key=lambda row: row.index)
    return SplitDescription(
        split=state.split,
        num_shards=state.num_shards,
        accepted=len(good),
        missing=tuple(state.missing),
        unlisted=tuple(state.unlisted),
        rejected=tuple(rejected[:MAX_LISTED]),
        num_rejected=len(rejected),
        verdicts=_in_order(state.rows, state.num_shards),
        size_bytes=sum(row.size_bytes for row in good),
        statistics=merged_statistics(good),
        label=requirements.label,
        kinds={feature.name: feature.kind for feature in requirements.features},
    )


def _in_order(rows: Sequence[Verdict], num_shards: int | None) -> tuple[Verdict | None, ...]:
    """Return verdicts in the order of their indices, or of their names where names say no index."""
    if all(row.num_shards for row in rows):
        by_index = {row.index: row for row in rows}
        return tuple(by_index.get(index) for index in range(num_shards or 0))
    return (*sorted(rows, key=attrgetter("name")), *[None] * max(0, (num_shards or 0) - len(rows)))


def split_sketches(
    pipeline: Pipeline, version: DatasetVersion, services: IngestServices | RunServices
) -> Iterator[SplitSketch]:
    """Yield the verdicts on each split's shards, in a fraction of the time of `split_descriptions`."""
    sizes, marks = services.ledger.split_sizes(version), services.ledger.shard_marks(version)
    for split in pipeline.data.splits:
        size = sizes.get(split) or None
        own = [mark for mark in marks if mark.split == split and mark.num_shards in (0, size)]
        yield SplitSketch(split=split, num_shards=size, verdicts=_in_order(own, size))


def merged_statistics(rows: Iterable[ShardRecord]) -> ShardStatistics:
    """Merge what validation saw; a shard whose statistics the ledger had to cut only counts its records."""
    total = ShardStatistics()
    for row in rows:
        if "features" in row.statistics:
            total.merge(ShardStatistics.from_json(row.statistics))
        else:
            total.num_records += row.num_records
    return total
