"""What is known of a dataset version, for people: what is there, what is missing, what was rejected and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from function_app.errors import NotFoundError
from function_app.ledger import DatasetVersion, Generation, RunRecord, ShardRecord, ShardState
from function_app.pipelines import Pipeline
from function_app.steps.drift import DriftFindings, drift_findings
from function_app.steps.services import Services
from function_app.steps.set_check import last_refusal
from shard_validation import DataRequirements, ShardStatistics

MAX_LISTED = 1000
"""Of missing or rejected shards: an answer stays readable, and says how many there are in all."""


@dataclass(frozen=True, kw_only=True)
class SplitDescription:
    """One required split."""

    split: str
    num_shards: int | None
    """None: no shard has come yet, so nobody knows."""
    accepted: int
    missing: tuple[str, ...]
    """Names of shards that have not come, or were rejected."""
    rejected: tuple[ShardRecord, ...]
    num_rejected: int
    size_bytes: int
    """Of the accepted shards, as ``statistics``."""
    statistics: ShardStatistics
    label: str | None
    """The feature whose histogram is the labels'."""
    kinds: Mapping[str, str]
    """Of each feature: int64, float or bytes."""


@dataclass(frozen=True, kw_only=True)
class VersionDescription:
    """One dataset version."""

    dataset_version: DatasetVersion
    pipeline: Pipeline
    splits: tuple[SplitDescription, ...]
    generation: Generation | None
    """The latest closing; None while it was never whole."""
    superseded: tuple[Generation, ...]
    """The closings before the latest one, the last first."""
    refusal: tuple[str, ...]
    """Why the shards, all there, do not hold as a set; empty where nothing is known against them."""
    drift: DriftFindings
    """The latest closing against the data that the then current model was trained on."""
    runs: tuple[RunRecord, ...]
    """Newest first."""


def describe_version(version: DatasetVersion, services: Services) -> VersionDescription:
    """Return what the ledger knows. Raises NotFoundError where that is nothing at all."""
    pipeline = services.pipelines.get(version.dataset)
    if pipeline is None:
        raise NotFoundError(f"dataset {version.dataset} has no pipeline")
    if not pipeline.data.is_synthetic and not services.ledger.split_sizes(version):
        raise NotFoundError(f"no shard of {version} has come yet")
    runs = services.ledger.runs(dataset=version.dataset)
    closings = services.ledger.generations(version)
    generation = closings[0] if closings else None
    if pipeline.data.is_synthetic and generation is None:
        raise NotFoundError(f"nobody has asked for a run of {version} yet")
    return VersionDescription(
        dataset_version=version,
        pipeline=pipeline,
        splits=tuple(_splits(pipeline, version, services)),
        generation=generation,
        superseded=tuple(closings[1 : MAX_LISTED + 1]),
        refusal=refusal_messages(version, services),
        drift=DriftFindings() if generation is None else drift_findings(generation, services),
        runs=tuple(run for run in runs if run.dataset_version == version),
    )


def missing_shards(pipeline: Pipeline, version: DatasetVersion, services: Services) -> list[str]:
    """Return the names of shards that keep a version open."""
    return [name for split in _splits(pipeline, version, services) for name in split.missing]


def refusal_messages(version: DatasetVersion, services: Services) -> tuple[str, ...]:
    """Return what was found wrong with a version as a set."""
    refusal = last_refusal(version, services)
    return () if refusal is None else tuple(refusal.details.get("messages", ()))


def merged_statistics(rows: Iterable[ShardRecord]) -> ShardStatistics:
    """Merge what validation saw; a shard whose statistics the ledger had to cut only counts its records."""
    total = ShardStatistics()
    for row in rows:
        if "features" in row.statistics:
            total.merge(ShardStatistics.from_json(row.statistics))
        else:
            total.num_records += row.num_records
    return total


def _splits(pipeline: Pipeline, version: DatasetVersion, services: Services) -> Iterator[SplitDescription]:
    sizes = services.ledger.split_sizes(version)
    rows = list(services.ledger.shards(version)) if sizes else []
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
        size_bytes=sum(row.size_bytes for row in good),
        statistics=merged_statistics(good),
        label=requirements.label,
        kinds={feature.name: feature.kind for feature in requirements.features},
    )
