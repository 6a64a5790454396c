"""What a dataset version has and what it is missing, split by split."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from function_app.config.pipelines import Pipeline
from function_app.domain.records import DatasetVersion, ShardRecord, ShardState
from function_app.ingest.closing import last_refusal
from function_app.ports import HistoryLedger, ShardLedger
from shard_validation import DataRequirements, ShardStatistics

MAX_LISTED = 1000
"""Longest list of missing or rejected shards; the total number is always stated."""


@dataclass(frozen=True, kw_only=True)
class SplitDescription:
    """One required split."""

    split: str
    num_shards: int | None
    """None while no shard has come."""
    accepted: int
    missing: tuple[str, ...]
    """Names of shards that have not come or were rejected."""
    rejected: tuple[ShardRecord, ...]
    num_rejected: int
    verdicts: Mapping[int, ShardRecord]
    """Index → verdict, of every position that has one."""
    size_bytes: int
    """Size of the accepted shards; ``statistics`` cover the same shards."""
    statistics: ShardStatistics
    label: str | None
    """The feature that holds the label."""
    kinds: Mapping[str, str]
    """Feature → int64, float or bytes."""


def missing_shards(pipeline: Pipeline, version: DatasetVersion, ledger: ShardLedger) -> list[str]:
    """Return the names of shards that keep a version open."""
    return [name for split in split_descriptions(pipeline, version, ledger) for name in split.missing]


def refusal_messages(version: DatasetVersion, ledger: HistoryLedger) -> tuple[str, ...]:
    """Return what was found wrong with a version as a set."""
    refusal = last_refusal(version, ledger)
    return () if refusal is None else tuple(refusal.details.get("messages", ()))


def split_descriptions(
    pipeline: Pipeline, version: DatasetVersion, ledger: ShardLedger
) -> Iterator[SplitDescription]:
    """Yield what there is of each split that the pipeline requires."""
    sizes = ledger.split_sizes(version)
    rows = list(ledger.shards(version)) if sizes else []
    requirements = pipeline.data.requirements()
    for split in pipeline.data.splits:
        own = [row for row in rows if row.split == split and row.num_shards == sizes.get(split)]
        yield _split(split, sizes.get(split), own, requirements)


def _split(
    split: str, num_shards: int | None, rows: list[ShardRecord], requirements: DataRequirements
) -> SplitDescription:
    good = [row for row in rows if row.state is ShardState.ACCEPTED]
    accepted = {row.index for row in good}
    rejected = sorted((row for row in rows if row.state is ShardState.REJECTED), key=lambda row: row.index)
    if num_shards is None:
        missing = [f"{split}-*: no shard of this split has come yet"]
    else:
        absent = (index for index in range(num_shards) if index not in accepted)
        missing = [f"{split}-{index:05d}-of-{num_shards:05d}" for index in absent]
    return SplitDescription(
        split=split,
        num_shards=num_shards,
        accepted=len(accepted),
        missing=tuple(missing),
        rejected=tuple(rejected[:MAX_LISTED]),
        num_rejected=len(rejected),
        verdicts={row.index: row for row in rows},
        size_bytes=sum(row.size_bytes for row in good),
        statistics=merged_statistics(good),
        label=requirements.label,
        kinds={feature.name: feature.kind for feature in requirements.features},
    )


def merged_statistics(rows: Iterable[ShardRecord]) -> ShardStatistics:
    """Merge what validation saw; a shard whose statistics the ledger had to cut only counts its records."""
    total = ShardStatistics()
    for row in rows:
        if "features" in row.statistics:
            total.merge(ShardStatistics.from_json(row.statistics))
        else:
            total.num_records += row.num_records
    return total
