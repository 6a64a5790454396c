"""The description of a dataset version: accepted, missing and rejected shards, with reasons."""

from __future__ import annotations

from dataclasses import dataclass

from function_app.config.pipelines import Pipeline
from function_app.domain.errors import NotFoundError
from function_app.domain.records import DatasetVersion, Generation, RunRecord
from function_app.domain.run_queue import RunQueue
from function_app.ingest.completeness import MAX_LISTED, SplitDescription, refusal_messages, split_descriptions
from function_app.ingest.drift import DriftFindings, drift_findings
from function_app.runs.admission import why_held
from function_app.services import Services


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
    hold: str | None
    """Why requests for runs on the latest closing are refused until its hold is lifted; None without a hold."""
    refusal: tuple[str, ...]
    """Why the shards, all there, do not hold as a set; empty if nothing is known against them."""
    drift: DriftFindings
    """The latest closing against the data that the then current model was trained on."""
    runs: tuple[RunRecord, ...]
    """Newest first."""
    queue: RunQueue
    """Where those of them that wait stand in line."""


def describe_version(version: DatasetVersion, services: Services, *, reads_shards: bool = True) -> VersionDescription:
    """Return what the ledger knows. Raises NotFoundError if that is nothing at all, PipelineOutOfServiceError.

    Without ``reads_shards`` there are no ``splits``, and the time does not depend on the number of shards.
    """
    pipeline = services.pipeline_of(version.dataset)
    if not pipeline.data.is_synthetic and not services.ledger.split_sizes(version):
        raise NotFoundError(
            f"no upload of {version} has been seen yet: events take seconds, or minutes under load. "
            f"If this does not change, `landfall why {version}/SHARD` shows what happened to a file, and "
            "`landfall reconcile` finds missed ones"
        )
    runs = services.ledger.runs(dataset=version.dataset)
    closings = services.ledger.generations(version)
    generation = closings[0] if closings else None
    if pipeline.data.is_synthetic and generation is None:
        raise NotFoundError(f"no run of {version} was requested yet; run `landfall submit {version.dataset}`")
    return VersionDescription(
        dataset_version=version,
        pipeline=pipeline,
        splits=tuple(split_descriptions(pipeline, version, services)) if reads_shards else (),
        generation=generation,
        superseded=tuple(closings[1 : MAX_LISTED + 1]),
        hold=None if generation is None else why_held(version, generation.number, services.ledger),
        refusal=refusal_messages(version, services.ledger),
        drift=DriftFindings() if generation is None else drift_findings(generation, services),
        runs=tuple(run for run in runs if run.dataset_version == version),
        queue=services.ledger.run_queue(),
    )
