"""Request and response bodies of the HTTP API; its OpenAPI document is generated from them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from function_app.config.pipelines import Pipeline, processes_under
from function_app.domain.records import DeadLetterState, NotificationRecord, RunRecord, ShardRecord
from function_app.domain.run_queue import RunQueue
from function_app.domain.run_states import RunState
from function_app.explain.description import VersionDescription
from function_app.explain.history import MAX_LINES
from function_app.ingest.completeness import MAX_LISTED, SplitDescription
from function_app.runs.admission import place_in_line
from function_app.runs.requests import MAX_TEXT_CHARS
from function_app.services import Services
from function_app.sweep.requested import SweepState
from function_app.web.plans import PredictionBody
from shard_validation import FeatureStatistics
from shared.vm_sizes import device_of

NOT_UNICODE = "string_unicode"
"""Pydantic's name of this error."""
BoundedText = Annotated[str, Field(max_length=MAX_TEXT_CHARS)]
"""Pydantic rejects lone surrogates only in strings with a length limit, so keys and values of dicts need one."""
MAX_FREQUENT = 20
"""Most frequent values of a feature that a response lists."""


class RecordBody(BaseModel):
    """Base of bodies whose fields have the names of a record's attributes: ``Body.of(record)``."""

    model_config = ConfigDict(from_attributes=True)

    @classmethod
    def of(cls, record: object) -> Self:
        """Return the body of a record."""
        return cls.model_validate(record)


class RunRequest(BaseModel):
    """A run to start."""

    model_config = ConfigDict(extra="forbid")

    dataset: str = Field(min_length=1, max_length=63)
    version: str | None = Field(
        default=None, min_length=1, max_length=64, description="Omit for synthetic data, which have no versions."
    )
    overrides: dict[BoundedText, int | float | BoundedText | bool] = Field(default_factory=dict, max_length=50)
    force: bool = Field(
        default=False,
        description="Train even if the same was trained before, or if the training script has lint errors.",
    )
    dry_run: bool = Field(default=False, alias="dryRun", description="Return a plan and change nothing.")


class ProblemPart(BaseModel):
    """One problem and its place in the request."""

    detail: str
    pointer: str | None = Field(
        default=None, description="Place in the body, as a JSON Pointer (RFC 6901) after `#`: `#/overrides/epochs`."
    )
    parameter: str | None = Field(default=None, description="Name of the parameter or header.")


class Problem(BaseModel):
    """The body of every error response: problem details as RFC 9457 defines them."""

    type: str = Field(description="Reference that identifies the kind of problem; it ends with the code.")
    title: str = Field(description="The kind of problem in words, always the same.")
    status: int
    detail: str = Field(description="What is wrong with this request, and what to do.")
    code: str = Field(description="Name of the kind of problem, for programs.")
    errors: list[ProblemPart] = Field(
        default_factory=list, description="Each thing that is wrong, if there are several."
    )


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
    def of(cls, shard: ShardRecord) -> RejectedShard:
        """Return the body of a rejected shard."""
        reasons = [ReasonBody.model_validate(reason.to_json()) for reason in shard.reasons]
        return cls(shard=shard.name, reasons=reasons)


class FeatureBody(BaseModel):
    """Statistics of one feature."""

    kind: str | None = Field(description="Kind in the current pipeline: int64, float or bytes.")
    num_present: int = Field(description="Number of records that have the feature.")
    minimum: float | None = Field(description="Smallest number; for images and texts the smallest size in bytes.")
    maximum: float | None
    num_distinct: int = Field(
        description="Number of distinct values of a scalar or text, or sizes of an image; a lower bound if other > 0."
    )
    most_frequent: dict[str, int] = Field(
        description=f"The most frequent values with their number of records; at most {MAX_FREQUENT}."
    )
    other: int = Field(description="Number of records whose value was not counted because the histogram was full.")

    @classmethod
    def of(cls, statistics: FeatureStatistics, kind: str | None) -> FeatureBody:
        """Return the body of a feature's statistics."""
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


class StatisticsBody(BaseModel):
    """Statistics of the records in a split's accepted shards."""

    num_records: int
    num_bytes: int = Field(description="Size of the records; for Parquet, of the uncompressed pages.")
    size_bytes: int = Field(description="Size of the shards as stored.")
    label_feature: str | None
    labels: dict[str, int] = Field(description="Number of records for each label.")
    other_labels: int = Field(
        description="Number of records whose label was not counted because the histogram was full."
    )
    features: dict[str, FeatureBody]

    @classmethod
    def of(cls, split: SplitDescription) -> StatisticsBody:
        """Return the body of a split's statistics."""
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

    num_shards: int | None = Field(description="Null while it is unknown: before the first shard or marker.")
    accepted: int
    num_missing: int
    missing: list[str] = Field(
        description=f"Missing and rejected shards, and what else is missing; at most {MAX_LISTED}."
    )
    num_unlisted: int = 0
    unlisted: list[str] = Field(
        default=[],
        description=f"Files that the version's list does not name, so they are not part of it; at most {MAX_LISTED}.",
    )
    num_rejected: int
    rejected: list[RejectedShard] = Field(description=f"Rejected shards with their reasons; at most {MAX_LISTED}.")
    statistics: StatisticsBody

    @classmethod
    def of(cls, split: SplitDescription) -> SplitBody:
        """Return the body of a split."""
        return cls(
            num_shards=split.num_shards,
            accepted=split.accepted,
            num_missing=len(split.missing),
            missing=list(split.missing[:MAX_LISTED]),
            num_unlisted=len(split.unlisted),
            unlisted=list(split.unlisted[:MAX_LISTED]),
            num_rejected=split.num_rejected,
            rejected=[RejectedShard.of(row) for row in split.rejected],
            statistics=StatisticsBody.of(split),
        )


class MeasureBody(BaseModel):
    """One measure of a version's drift."""

    code: str
    split: str
    value: float
    threshold: float
    exceeds: bool


class GenerationBody(RecordBody):
    """One closing of a version."""

    number: int
    fingerprint: str
    manifest_path: str
    num_shards: int
    num_records: int
    closed_at: datetime
    guess: str | None = Field(
        description="The evidence from which the version is assumed to be complete; null if it is known to be."
    )
    table_version: int | None = Field(
        description="The version of the Delta table that was closed; null for other layouts."
    )


class NotificationBody(RecordBody):
    """One notification of a run."""

    recipient: str
    outcome: str
    state: str
    tries: int
    last_error: str | None
    sent_at: datetime | None


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
    waiting: str | None = Field(
        default=None, description="What a queued run waits for, and how many versions are ahead of it."
    )
    created_at: datetime
    submitted_at: datetime | None
    ended_at: datetime | None
    notified_at: datetime | None
    reason: str | None
    log_tail: str | None
    model_name: str | None
    model_version: str | None
    metrics: dict[str, float]
    evidence: dict[str, Any] = Field(description="The evidence for the registration; see docs/registry.md.")
    num_nodes: int
    world_size: int | None
    forced_by: str | None = Field(description="Key of the request that forced the run.")
    not_before: datetime | None = Field(description="Earliest time to submit an attempt that waits for nodes.")
    cancel_requested_at: datetime | None
    failure_class: str | None = Field(description="Why the attempt failed; see docs/attempts.md for the classes.")
    remedy: str | None = Field(description="What was decided about a failed attempt; see docs/attempts.md.")
    next_run_id: str | None = Field(description="The attempt that continues this one.")
    sweep_id: str | None = Field(description="The option sweep to which the run belongs.")
    sweep_number: int | None = Field(description="Number of the run in its option sweep, from 1.")
    outputs: dict[str, str] = Field(
        description="Folders to which the job writes: report, model and checkpoints, each as an azureml:// URI."
    )
    notifications: list[NotificationBody] | None = Field(
        default=None, description="Notifications, sent or to be sent; null in lists of runs."
    )
    prediction: PredictionBody | None = Field(description="The prediction at submission, and the result.")

    @classmethod
    def of(
        cls, run: RunRecord, queue: RunQueue, notifications: Iterable[NotificationRecord] | None = None
    ) -> RunBody:
        """Return the body of a run, with its place in the run queue."""
        derived = ("dataset", "version", "waiting", "notifications", "outputs", "prediction")
        own: dict[str, Any] = {name: getattr(run, name) for name in cls.model_fields if name not in derived}
        return cls(
            dataset=run.dataset_version.dataset,
            version=run.dataset_version.version,
            waiting=place_in_line(run, queue),
            notifications=None if notifications is None else [NotificationBody.of(each) for each in notifications],
            outputs={name: output["uri"] for name, output in run.spec.get("outputs", {}).items()},
            prediction=PredictionBody.of(run),
            **own,
        )


class HoldBody(BaseModel):
    """The hold that a release has lifted."""

    dataset: str
    version: str
    released: bool = Field(description="False if the version was not on hold.")
    reason: str | None = Field(description="Why it was on hold; null if it was not.")


class MachinesBody(BaseModel):
    """The machines of a pipeline's jobs."""

    cluster: str
    vm_size: str
    num_nodes: int
    world_size: int = Field(description="Processes on all nodes together.")
    device: Literal["gpu", "cpu"]

    @classmethod
    def of(cls, pipeline: Pipeline) -> Self:
        """Return the body of a pipeline's machines."""
        machines, num_nodes = pipeline.machines, pipeline.train.num_nodes
        return cls(
            cluster=machines.cluster,
            vm_size=machines.vm_size,
            num_nodes=num_nodes,
            world_size=num_nodes * processes_under(pipeline.train.distribution, machines),
            device=device_of(machines.vm_size),
        )


class PipelineBody(BaseModel):
    """One pipeline, in service or out of service."""

    dataset: str | None = Field(description="Null if the file does not state it.")
    pipeline: str | None = Field(description="Null for a pipeline that is out of service.")
    state: Literal["in_service", "out_of_service"]
    splits: list[str] | None = Field(
        description="Splits whose shards it accepts: none for synthetic data; null if out of service."
    )
    layout: dict[str, Any] | None = Field(description="The pipeline's `data.layout`; null if out of service.")
    machines: MachinesBody | None = Field(description="What its jobs run on; null if out of service.")
    problems: list[str] = Field(description="What to correct: file, field, problem; empty for a pipeline in service.")


class PipelinesBody(BaseModel):
    """Pipelines: those that are out of service first, and then by dataset."""

    pipelines: list[PipelineBody]
    next: str | None = Field(default=None, description="Path of the next page; null on the last one.")

    @classmethod
    def of_services(cls, services: Services) -> Self:
        """Return the body of the pipelines."""
        broken = [
            PipelineBody(
                dataset=dataset or None,
                pipeline=None,
                state="out_of_service",
                splits=None,
                layout=None,
                machines=None,
                problems=list(problems),
            )
            for dataset, problems in sorted(services.out_of_service.items())
        ]
        known = [
            PipelineBody(
                dataset=dataset,
                pipeline=pipeline.pipeline,
                state="in_service",
                splits=list(pipeline.data.splits),
                layout=pipeline.data.layout.to_json(),
                machines=MachinesBody.of(pipeline),
                problems=[],
            )
            for dataset, pipeline in sorted(services.pipelines.items())
        ]
        return cls(pipelines=broken + known)


class VersionBody(BaseModel):
    """A dataset version."""

    dataset: str
    version: str
    state: str = Field(description="open until the version is complete for the first time, then closed.")
    pipeline: str
    splits: dict[str, SplitBody]
    hold: str | None = Field(description="Why requests for runs are refused until the hold is lifted; null: no hold.")
    refusal: list[str] = Field(description="Why the shards, although complete, are not accepted as a set.")
    drift: list[str] = Field(
        description="Differences from the data of the current model that exceed their thresholds."
    )
    drift_measures: list[MeasureBody] = Field(
        description="All measures of the drift, also those within their threshold."
    )
    drift_reference: str | None = Field(description="The dataset version of the model that was current at that time.")
    generation: GenerationBody | None
    superseded: list[GenerationBody] = Field(description="Earlier closings, whose content no longer exists.")
    runs: list[RunBody]

    @classmethod
    def of(cls, described: VersionDescription) -> VersionBody:
        """Return the body of a version."""
        return cls(
            dataset=described.dataset_version.dataset,
            version=described.dataset_version.version,
            state="open" if described.generation is None else "closed",
            pipeline=described.pipeline.pipeline,
            splits={split.split: SplitBody.of(split) for split in described.splits},
            hold=described.hold,
            refusal=list(described.refusal),
            drift=list(described.drift.messages),
            drift_measures=[MeasureBody.model_validate(measure) for measure in described.drift.measures],
            drift_reference=described.drift.trained_on,
            generation=None if described.generation is None else GenerationBody.of(described.generation),
            superseded=[GenerationBody.of(generation) for generation in described.superseded],
            runs=[RunBody.of(run, described.queue) for run in described.runs],
        )


class HistoryEntryBody(RecordBody):
    """One entry of a history."""

    at: datetime
    subject: str
    action: str
    reason: str
    details: dict[str, Any]


class HistoryBody(RecordBody):
    """The history of a version, a run or a blob, oldest entry first, and what it waits for."""

    subject: str
    kind: Literal["version", "run", "blob"]
    lines: list[HistoryEntryBody]
    num_omitted: int = Field(description=f"Older entries that are not listed; a response lists {MAX_LINES} at most.")
    awaited: list[str] = Field(description="What has to happen next, in words; empty if nothing.")


class SweepBody(RecordBody):
    """What a sweep found and did."""

    shards_missed: int = Field(description="Uploaded shards without an event, which were sent to be validated.")
    versions: int
    versions_unchanged: int = Field(description="Closed versions whose blobs have not changed since the last sweep.")
    runs: int = Field(description="Unfinished runs that were checked.")
    notifications: int = Field(description="Unsent notifications, which were sent again if they were due.")
    dead_letters: int = Field(description="Messages and events that became dead letters in the ledger now.")
    unknown_jobs: int = Field(description="Jobs with Landfall's tags that were not in the ledger.")
    problems: list[str] = Field(description="Parts that failed; the next sweep tries them again.")


class RequestedSweepBody(RecordBody):
    """A sweep that was requested."""

    sweep_id: str
    state: SweepState
    requested_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    report: SweepBody | None = Field(description="What it found and did, once it has ended.")
    error: str | None = Field(description="Why the whole sweep failed; failures of single parts are in the report.")


class DeadLetterSummary(RecordBody):
    """A message or event whose processing was abandoned."""

    dead_letter_id: str
    source: str
    subject: str
    error: str
    tries: int
    died_at: datetime
    num_deaths: int
    state: DeadLetterState
    num_replays: int
    replayed_at: datetime | None


class DeadLetterBody(DeadLetterSummary):
    """A dead letter with its payload."""

    payload: str
    is_whole: bool = Field(description="False if the payload was too large to store; it cannot be replayed then.")
