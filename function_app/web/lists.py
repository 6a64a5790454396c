"""The routes of paged and filtered lists, with their bodies. Each page states the path of the next one."""

from __future__ import annotations

from datetime import datetime
from heapq import nsmallest
from itertools import islice
from typing import Annotated, Any, Literal, Self
from urllib.parse import quote, urlencode

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from function_app.domain.errors import NotFoundError
from function_app.domain.passports import CheckResult, PassportCheck, PassportError
from function_app.domain.records import DatasetVersion, Generation, RunRecord, ShardRecord, ShardState
from function_app.domain.run_states import RunState
from function_app.explain.overview import MAX_MODEL_RUNS, MAX_MODEL_VERSIONS, Model, models
from function_app.explain.run_description import MAX_EPOCHS, measured_epochs
from function_app.registry.passport import find_passport
from function_app.registry.promotion import current_model, promote_by_person, registered_version
from function_app.registry.verification import verify
from function_app.services import Services
from function_app.web.bodies import PipelinesBody, ReasonBody, RunBody
from function_app.web.routes import RUN_ID, AppServices, DatasetName, RunId, VersionName, refusals
from function_app.web.sweeps import router
from shared.configuration import suggestion

__all__ = ["router"]  # the API's, to which this module adds its routes

MAX_RUNS = 1000
MAX_VERSIONS = 1000
MAX_DATASETS = 100
"""Maximum datasets of a page: the ledger is read once for each."""
MAX_READ = 10_000
"""Versions of a dataset that are read for its list, and closings for its latest version."""
MAX_SHARDS = 1000
MAX_MODELS = 1000
MAX_PIPELINES = 1000
SHARD = r"^.+/[0-9]{1,19}$"

ModelName = Annotated[str, Path(min_length=1, max_length=255, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
ModelVersionName = Annotated[str, Path(min_length=1, max_length=255, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
NEXT = Field(description="Path of the next page; null on the last one.")


class RunsBody(BaseModel):
    """Runs, newest first."""

    runs: list[RunBody]
    next: str | None = NEXT


class ModelVersionBody(BaseModel):
    """A version of a registered model, and the run that trained it."""

    version: str
    run_id: str
    dataset: str
    dataset_version: str
    generation: int
    registered_at: datetime
    metrics: dict[str, float]
    evidence: dict[str, Any] = Field(description="The evidence for the registration, as for the run.")

    @classmethod
    def of(cls, run: RunRecord) -> Self:
        """Return the body of a registered run's model."""
        return cls(
            version=str(run.model_version),
            run_id=run.run_id,
            dataset=run.dataset_version.dataset,
            dataset_version=run.dataset_version.version,
            generation=run.generation,
            registered_at=run.state_since,
            metrics=dict(run.metrics),
            evidence=dict(run.evidence),
        )


class ModelBody(BaseModel):
    """A registered model."""

    name: str
    current: str | None = Field(description="The version that was promoted last; null if none was.")
    versions: list[ModelVersionBody] = Field(
        description=f"The newest {MAX_MODEL_VERSIONS}, of the newest {MAX_MODEL_RUNS} runs."
    )

    @classmethod
    def of(cls, model: Model) -> Self:
        """Return the body of a model."""
        versions = [ModelVersionBody.of(run) for run in model.runs]
        return cls(name=model.name, current=model.current.version if model.current else None, versions=versions)


class RegisteredVersionBody(ModelVersionBody):
    """One version of a registered model."""

    name: str
    is_current: bool


class PassportBody(BaseModel):
    """The record of how a model version was made, with a digest over itself; docs/registry.md describes its parts."""

    model_config = ConfigDict(extra="allow")

    format_version: int
    model: dict[str, Any]
    data: dict[str, Any]
    job: dict[str, Any]
    code: dict[str, Any]
    environment: dict[str, Any]
    run: dict[str, Any]
    evidence: dict[str, Any]
    metrics: dict[str, Any]
    decision: dict[str, Any]
    digest: str = Field(description="SHA-256 over canonical JSON of everything else; a tag of the model has it too.")


class PassportCheckBody(BaseModel):
    """One statement of a passport, recomputed or not."""

    name: str
    result: CheckResult
    text: str = Field(description="What was recomputed and from which data, or why that is impossible.")
    expected: str | None = Field(description="What the passport says, if the two differ.")
    found: str | None


class VerificationBody(BaseModel):
    """The statements of a passport that were recomputed, and whether they agree."""

    name: str
    version: str
    agrees: bool = Field(description="Whether nothing differs.")
    checks: list[PassportCheckBody]

    @classmethod
    def of(cls, name: str, version: str, checks: list[PassportCheck]) -> Self:
        """Return the body of checks."""
        return cls(
            name=name,
            version=version,
            agrees=all(check.result is not CheckResult.DIFFERS for check in checks),
            checks=[PassportCheckBody(**vars(check)) for check in checks],
        )


class CurrentModelBody(BaseModel):
    """The current version of a model."""

    name: str
    version: str
    run_id: str
    promoted_at: datetime
    promoted_by: str
    previous: str | None = Field(description="The version that was current before it.")


class ModelsBody(BaseModel):
    """Registered models, by name."""

    models: list[ModelBody]
    next: str | None = NEXT


class ShardBody(BaseModel):
    """The verdict on one shard."""

    split: str
    index: int = Field(description="Position in the split, from 0.")
    num_shards: int = Field(description="Number of shards of the split, as the shard's own name states it.")
    name: str
    state: ShardState
    size_bytes: int
    num_records: int = Field(description="Number of records read; for a rejected shard, those before the error.")
    crc32c: str
    validated_at: datetime
    reasons: list[ReasonBody] = Field(description="Why it was rejected; empty if it was accepted.")

    @classmethod
    def of(cls, shard: ShardRecord) -> Self:
        """Return the body of a verdict."""
        own: dict[str, Any] = {name: getattr(shard, name) for name in cls.model_fields if name != "reasons"}
        return cls(reasons=[ReasonBody.model_validate(reason.to_json()) for reason in shard.reasons], **own)


class ShardsBody(BaseModel):
    """Shards of a dataset version that have a verdict, by split and position."""

    dataset: str
    version: str
    shards: list[ShardBody]
    next: str | None = NEXT


class MetricsBody(BaseModel):
    """The metrics of a run."""

    run_id: str
    state: RunState
    epochs: list[dict[str, float]] = Field(
        description=f"Each epoch that has ended, the newest {MAX_EPOCHS}: `epoch` from 1, and what was measured. "
        "Of a run that has not ended, those that the end of its log names."
    )
    newest: dict[str, float] | None = Field(
        description="The newest progress line, within an epoch; null without any."
    )


class VersionSummary(BaseModel):
    """A dataset version in a list."""

    version: str
    state: str = Field(description="open until the version is complete for the first time, then closed.")
    generation: int | None = Field(description="Number of its latest generation; null while it is open.")
    closed_at: datetime | None = Field(description="When that generation was closed.")

    @classmethod
    def of(cls, version: DatasetVersion, closing: Generation | None) -> Self:
        """Return the body of a version with its latest closing."""
        return cls(
            version=version.version,
            state="open" if closing is None else "closed",
            generation=None if closing is None else closing.number,
            closed_at=None if closing is None else closing.closed_at,
        )


class DatasetBody(BaseModel):
    """A dataset of a pipeline that is in service."""

    dataset: str
    pipeline: str
    latest: VersionSummary | None = Field(description="The last version that became complete; null if none has.")


class DatasetsBody(BaseModel):
    """Datasets, by name."""

    datasets: list[DatasetBody]
    next: str | None = NEXT


class DatasetVersionsBody(BaseModel):
    """Versions of a dataset, in descending order of their names."""

    dataset: str
    versions: list[VersionSummary]
    next: str | None = NEXT


@router.get("/runs", responses=refusals(404, 422))
def runs(
    services: AppServices,
    limit: Annotated[int, Query(ge=1, le=MAX_RUNS)] = 100,
    dataset: Annotated[str | None, Query(min_length=1, max_length=63)] = None,
    state: RunState | None = None,
    after: Annotated[
        str | None, Query(max_length=255, pattern=RUN_ID, description="List only runs older than this one.")
    ] = None,
) -> RunsBody:
    """List runs, newest first."""
    last = services.ledger.run(after) if after else None
    if after and last is None:
        raise NotFoundError(f"run {after} does not exist")
    found = services.ledger.runs(limit=limit, dataset=dataset, state=state, older_than=last)
    queue = services.ledger.run_queue()
    following = None
    if len(found) == limit:
        following = _page("runs", limit=limit, dataset=dataset, state=state, after=found[-1].run_id)
    return RunsBody(runs=[RunBody.of(run, queue) for run in found], next=following)


@router.get("/models", responses=refusals(422))
def registered_models(
    services: AppServices,
    limit: Annotated[int, Query(ge=1, le=MAX_MODELS)] = 100,
    after: Annotated[str | None, Query(min_length=1, max_length=255, description="Begin after this model.")] = None,
    dataset: Annotated[
        str | None, Query(min_length=1, max_length=63, description="Only models that were trained on this dataset.")
    ] = None,
) -> ModelsBody:
    """List the registered models by name, each with its newest versions."""
    found = [
        model
        for model in models(services)
        if (after is None or model.name > after)
        and (dataset is None or any(run.dataset_version.dataset == dataset for run in model.runs))
    ]
    shown = [ModelBody.of(model) for model in found[:limit]]
    following = _page("models", limit=limit, dataset=dataset, after=shown[-1].name) if len(found) > limit else None
    return ModelsBody(models=shown, next=following)


@router.get("/models/{name}", responses=refusals(404, 422))
def registered_model(name: ModelName, services: AppServices) -> ModelBody:
    """Show a registered model with its newest versions."""
    known = {model.name: model for model in models(services)}
    found = known.get(name)
    if found is None:
        near = suggestion(name, known)
        raise NotFoundError(f"none of the newest {MAX_MODEL_RUNS} runs registered a model {name}{near}")
    return ModelBody.of(found)


@router.get("/models/{name}/versions/{version}", responses=refusals(404, 422))
def registered_model_version(
    name: ModelName, version: ModelVersionName, services: AppServices
) -> RegisteredVersionBody:
    """Show a registered version with the evidence of its registration, and whether it is the current one."""
    named = registered_version(name, version, services)
    run, current = services.ledger.run(named.run_id), current_model(name, services.ledger)
    if run is None:
        raise NotFoundError(f"run {named.run_id}, which trained version {version} of model {name}, is not on record")
    is_current = current is not None and current.version == version
    own = {**ModelVersionBody.of(run).model_dump(), "version": version}
    return RegisteredVersionBody(name=name, is_current=is_current, **own)


@router.get("/models/{name}/versions/{version}/passport", responses=refusals(404, 409, 422))
def passport(name: ModelName, version: ModelVersionName, services: AppServices) -> PassportBody:
    """Show the passport of a version: from the events of its shards to the decision to register it."""
    found, _ = find_passport(name, version, services)
    try:
        return PassportBody.model_validate(found)
    except ValidationError as error:
        raise PassportError(
            f"the stored passport of {name}:{version} lacks members: {error.error_count()}"
        ) from error


@router.get("/models/{name}/versions/{version}/verification", responses=refusals(404, 409, 422))
def verification(name: ModelName, version: ModelVersionName, services: AppServices) -> VerificationBody:
    """Recompute the statements of a version's passport and report differences. This may take seconds."""
    return VerificationBody.of(name, version, verify(name, version, services))


@router.post("/models/{name}/versions/{version}/promote", responses=refusals(404, 409, 422))
def promote_version(name: ModelName, version: ModelVersionName, services: AppServices) -> CurrentModelBody:
    """Make a registered version the current one, which serving uses; repeating this changes nothing."""
    current = promote_by_person(name, version, services, by="a person over the API")
    return CurrentModelBody(
        name=name,
        version=current.version,
        run_id=current.run_id,
        promoted_at=datetime.fromisoformat(current.promoted_at),
        promoted_by=current.by,
        previous=current.previous.version if current.previous else None,
    )


@router.get("/datasets", responses=refusals(422))
def datasets(
    services: AppServices,
    limit: Annotated[int, Query(ge=1, le=MAX_DATASETS)] = MAX_DATASETS,
    after: Annotated[str | None, Query(min_length=1, max_length=63, description="Begin after this dataset.")] = None,
    pipeline: Annotated[
        str | None, Query(min_length=1, max_length=255, description="Only those of the pipeline with this name.")
    ] = None,
) -> DatasetsBody:
    """List the datasets of all pipelines in service, each with its last complete version."""
    names = sorted(
        name
        for name, own in services.pipelines.items()
        if (after is None or name > after) and pipeline in (None, own.pipeline)
    )
    shown = [_dataset(name, services) for name in names[:limit]]
    following = None
    if len(names) > limit:
        following = _page("datasets", limit=limit, pipeline=pipeline, after=shown[-1].dataset)
    return DatasetsBody(datasets=shown, next=following)


def _dataset(name: str, services: Services) -> DatasetBody:
    closings = islice(services.ledger.latest_generations(name), MAX_READ)
    latest = max(closings, key=lambda closing: closing.closed_at, default=None)
    return DatasetBody(
        dataset=name,
        pipeline=services.pipelines[name].pipeline,
        latest=None if latest is None else VersionSummary.of(latest.dataset_version, latest),
    )


@router.get("/datasets/{dataset}", responses=refusals(404, 422))
def dataset_versions(
    dataset: DatasetName,
    services: AppServices,
    limit: Annotated[int, Query(ge=1, le=MAX_VERSIONS)] = 100,
    after: Annotated[str | None, Query(min_length=1, max_length=64, description="Begin after this version.")] = None,
    state: Literal["open", "closed"] | None = None,
) -> DatasetVersionsBody:
    """List the versions of a dataset, in descending order of their names; at most 10,000."""
    closings = {one.dataset_version: one for one in islice(services.ledger.latest_generations(dataset), MAX_READ)}
    known = {*islice(services.ledger.versions(dataset), MAX_READ), *closings}
    if not known and dataset not in services.pipelines:
        near = suggestion(dataset, services.pipelines)
        raise NotFoundError(f"dataset {dataset} matches no pipeline, so it has no versions{near}")
    fitting = [one for one in known if state is None or (one in closings) == (state == "closed")]
    left = sorted((one for one in fitting if after is None or one.version < after), reverse=True)
    shown = [VersionSummary.of(version, closings.get(version)) for version in left[:limit]]
    following = None
    if len(left) > limit:
        following = _page(f"datasets/{quote(dataset, safe='')}", limit=limit, state=state, after=shown[-1].version)
    return DatasetVersionsBody(dataset=dataset, versions=shown, next=following)


@router.get("/datasets/{dataset}/{version}/shards", responses=refusals(404, 422))
def shards(
    dataset: DatasetName,
    version: VersionName,
    services: AppServices,
    *,
    limit: Annotated[int, Query(ge=1, le=MAX_SHARDS)] = 100,
    state: ShardState | None = None,
    split: Annotated[str | None, Query(min_length=1, max_length=63)] = None,
    after: Annotated[
        str | None,
        Query(max_length=83, pattern=SHARD, description="Begin after this one: split/index."),
    ] = None,
) -> ShardsBody:
    """List the shards of a version that have a verdict, by split and position, each with its reasons.

    Missing shards have no verdict: the response for the version lists them.
    """
    named = DatasetVersion(dataset=dataset, version=version)
    first = _place(after) if after else None
    verdicts = (
        one
        for one in services.ledger.shards(named)
        if state in (None, one.state) and split in (None, one.split) and (first is None or _order(one) > first)
    )
    fitting = nsmallest(limit + 1, verdicts, key=_order)
    if not fitting and not services.ledger.split_sizes(named):
        services.pipeline_of(dataset)
        raise NotFoundError(f"nothing of {named} has been uploaded")
    shown = fitting[:limit]
    following = None
    if len(fitting) > limit:
        path = f"datasets/{quote(dataset, safe='')}/{quote(version, safe='')}/shards"
        last = f"{shown[-1].split}/{shown[-1].index}"
        following = _page(path, limit=limit, state=state, split=split, after=last)
    return ShardsBody(dataset=dataset, version=version, shards=[ShardBody.of(one) for one in shown], next=following)


def _order(shard: ShardRecord) -> tuple[str, int]:
    return shard.split, shard.index


def _place(text: str) -> tuple[str, int]:
    split, _, index = text.rpartition("/")
    return split, int(index)


@router.get("/runs/{run_id}/metrics", responses=refusals(404, 422))
def metrics(run_id: RunId, services: AppServices) -> MetricsBody:
    """Show a run's metrics for each epoch: from its training report or, before its end, from its log."""
    run, epochs, newest = measured_epochs(run_id, services)
    return MetricsBody(
        run_id=run_id,
        state=run.state,
        epochs=[dict(epoch) for epoch in epochs],
        newest=None if newest is None else dict(newest),
    )


@router.get("/pipelines", responses=refusals(422))
def pipelines(
    services: AppServices,
    limit: Annotated[int, Query(ge=1, le=MAX_PIPELINES)] = 100,
    state: Literal["in_service", "out_of_service"] | None = None,
    dataset: Annotated[str | None, Query(min_length=1, max_length=63)] = None,
    after: Annotated[int, Query(ge=0, le=MAX_READ, description="Number of pipelines to skip.")] = 0,
) -> PipelinesBody:
    """List the pipelines, and the problems of those that are out of service until their files are corrected."""
    found = [
        one
        for one in PipelinesBody.of_services(services).pipelines
        if state in (None, one.state) and dataset in (None, one.dataset)
    ]
    end, following = after + limit, None
    if len(found) > end:
        following = _page("pipelines", limit=limit, state=state, dataset=dataset, after=end)
    return PipelinesBody(pipelines=found[after:end], next=following)


def _page(path: str, **parameters: object) -> str:
    return f"/api/{path}?" + urlencode({name: value for name, value in parameters.items() if value is not None})
