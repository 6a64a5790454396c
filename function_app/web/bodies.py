"""What the API takes and gives; the OpenAPI page is made of these."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from function_app.domain.records import Generation, RunRecord, ShardRecord
from function_app.domain.run_states import RunState
from function_app.explain.description import VersionDescription
from function_app.ingest.completeness import MAX_LISTED, SplitDescription
from shard_validation import FeatureStatistics

MAX_FREQUENT = 20
"""Values of a feature that an answer lists."""


class RunRequest(BaseModel):
    """A run to start."""

    model_config = ConfigDict(extra="forbid")

    dataset: str = Field(min_length=1, max_length=63)
    version: str | None = Field(
        default=None, min_length=1, max_length=64, description="Left out for synthetic data, which have no versions."
    )
    overrides: dict[str, int | float | str | bool] = Field(default_factory=dict, max_length=50)
    force: bool = Field(
        default=False,
        description="Train again on purpose, whatever was trained before; also with a script that has errors.",
    )


class ErrorBody(BaseModel):
    """What went wrong."""

    code: str
    message: str
    details: list[str] = Field(default_factory=list)


class Error(BaseModel):
    """The body of every answer that is an error."""

    error: ErrorBody


class ReasonBody(BaseModel):
    """Why a shard was rejected."""

    code: str
    message: str
    record_index: int | None
    byte_offset: int | None
    feature: str | None
    expected: str
    seen: str


class RejectedShard(BaseModel):
    """A rejected shard with its reasons."""

    shard: str
    reasons: list[ReasonBody]

    @classmethod
    def of(cls, row: ShardRecord) -> RejectedShard:
        """Take what the ledger holds."""
        reasons = [ReasonBody.model_validate(reason.to_json()) for reason in row.reasons]
        return cls(shard=row.name, reasons=reasons)


class FeatureBody(BaseModel):
    """What the values of a feature are like."""

    kind: str | None = Field(description="As the pipeline states it now: int64, float or bytes.")
    num_present: int = Field(description="Records that have it.")
    minimum: float | None = Field(description="Of all numbers; of images and texts their number of bytes.")
    maximum: float | None
    num_distinct: int = Field(
        description="Values of a scalar or a text, sizes of an image; at least, where other > 0."
    )
    most_frequent: dict[str, int] = Field(description=f"Of these: number of records; at most {MAX_FREQUENT}.")
    other: int = Field(description="Records whose value came after the histogram was full.")

    @classmethod
    def of(cls, statistics: FeatureStatistics, kind: str | None) -> FeatureBody:
        """Take what validation saw."""
        ranked = sorted(statistics.histogram.items(), key=lambda item: (-item[1], item[0]))
        return cls(
            kind=kind,
            num_present=statistics.num_present,
            minimum=statistics.minimum,
            maximum=statistics.maximum,
            num_distinct=len(statistics.histogram),
            most_frequent=dict(ranked[:MAX_FREQUENT]),
            other=statistics.other,
        )


class MeasureBody(BaseModel):
    """One figure of a version's drift."""

    code: str
    split: str
    value: float
    threshold: float
    exceeds: bool


class StatisticsBody(BaseModel):
    """What the records of a split's accepted shards are like."""

    num_records: int
    num_bytes: int = Field(description="Of the records; Parquet: of the uncompressed pages.")
    size_bytes: int = Field(description="Of the shards, as they are stored.")
    label_feature: str | None
    labels: dict[str, int] = Field(description="Label: number of records.")
    other_labels: int = Field(description="Records whose label came after the histogram was full.")
    features: dict[str, FeatureBody]

    @classmethod
    def of(cls, split: SplitDescription) -> StatisticsBody:
        """Take what the step describes."""
        labels = split.statistics.features.get(split.label or "", FeatureStatistics())
        return cls(
            num_records=split.statistics.num_records,
            num_bytes=split.statistics.num_bytes,
            size_bytes=split.size_bytes,
            label_feature=split.label,
            labels=labels.histogram,
            other_labels=labels.other,
            features={
                name: FeatureBody.of(seen, split.kinds.get(name))
                for name, seen in sorted(split.statistics.features.items())
            },
        )


class SplitBody(BaseModel):
    """One required split of a version."""

    num_shards: int | None = Field(description="The N of -of-N; null while no shard has come.")
    accepted: int
    num_missing: int
    missing: list[str] = Field(description=f"Shards that are not there or were rejected; at most {MAX_LISTED}.")
    num_rejected: int
    rejected: list[RejectedShard] = Field(description=f"With their reasons; at most {MAX_LISTED}.")
    statistics: StatisticsBody

    @classmethod
    def of(cls, split: SplitDescription) -> SplitBody:
        """Take what the step describes."""
        return cls(
            num_shards=split.num_shards,
            accepted=split.accepted,
            num_missing=len(split.missing),
            missing=list(split.missing[:MAX_LISTED]),
            num_rejected=split.num_rejected,
            rejected=[RejectedShard.of(row) for row in split.rejected],
            statistics=StatisticsBody.of(split),
        )


class GenerationBody(BaseModel):
    """One closing of a version."""

    number: int
    fingerprint: str
    manifest_path: str
    num_shards: int
    num_records: int
    closed_at: datetime

    @classmethod
    def of(cls, generation: Generation) -> GenerationBody:
        """Take what the ledger holds."""
        return cls(**{name: getattr(generation, name) for name in cls.model_fields})


class RunBody(BaseModel):
    """One run."""

    run_id: str
    logical_run: str
    attempt: int
    dataset: str
    version: str
    generation: int
    fingerprint: str
    pipeline: str
    trigger: str
    state: RunState
    state_since: datetime
    created_at: datetime
    submitted_at: datetime | None
    ended_at: datetime | None
    notified_at: datetime | None
    reason: str | None
    log_tail: str | None
    model_name: str | None
    model_version: str | None
    metrics: dict[str, float]
    num_nodes: int
    world_size: int | None
    forced_by: str | None = Field(description="Key of the request that asked to train again on purpose.")
    not_before: datetime | None = Field(description="An attempt that waits for nodes is not submitted before.")
    cancel_requested_at: datetime | None
    failure_class: str | None = Field(description="Why an attempt failed, in one word; see docs/attempts.md.")
    remedy: str | None = Field(description="What was decided about a failed attempt.")
    next_run_id: str | None = Field(description="The attempt that continues this one.")
    notifications: list[NotificationBody] | None = Field(
        default=None, description="Whom it was or will be told; only where one run is asked for."
    )

    @classmethod
    def of(cls, run: RunRecord) -> RunBody:
        """Take what the ledger holds."""
        own: Mapping[str, Any] = {
            name: getattr(run, name)
            for name in cls.model_fields
            if name not in ("dataset", "version", "notifications")
        }
        return cls(dataset=run.dataset_version.dataset, version=run.dataset_version.version, **own)


class NotificationBody(BaseModel):
    """One notification of a run."""

    recipient: str
    outcome: str
    state: str
    tries: int
    last_error: str | None
    sent_at: datetime | None


class RunsBody(BaseModel):
    """Runs, newest first."""

    runs: list[RunBody]


class VersionBody(BaseModel):
    """A dataset version."""

    dataset: str
    version: str
    state: str = Field(description="open while shards are missing; closed from the first time it was whole.")
    pipeline: str
    splits: dict[str, SplitBody]
    refusal: list[str] = Field(description="Why shards that are all there do not hold as a set.")
    drift: list[str] = Field(description="What is too far off the data that the current model was trained on.")
    drift_measures: list[MeasureBody] = Field(
        description="All figures of the drift, also those within their threshold."
    )
    drift_reference: str | None = Field(description="The dataset version that the then current model was trained on.")
    generation: GenerationBody | None
    superseded: list[GenerationBody] = Field(
        description="The closings before the latest one: their content is not there any more."
    )
    runs: list[RunBody]

    @classmethod
    def of(cls, described: VersionDescription) -> VersionBody:
        """Take what the step describes."""
        return cls(
            dataset=described.dataset_version.dataset,
            version=described.dataset_version.version,
            state="open" if described.generation is None else "closed",
            pipeline=described.pipeline.pipeline,
            splits={split.split: SplitBody.of(split) for split in described.splits},
            refusal=list(described.refusal),
            drift=list(described.drift.messages),
            drift_measures=[MeasureBody.model_validate(measure) for measure in described.drift.measures],
            drift_reference=described.drift.trained_on,
            generation=None if described.generation is None else GenerationBody.of(described.generation),
            superseded=[GenerationBody.of(generation) for generation in described.superseded],
            runs=[RunBody.of(run) for run in described.runs],
        )


RunBody.model_rebuild()
