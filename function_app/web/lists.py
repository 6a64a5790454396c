"""The routes of lists with pages and filters, with their bodies. A page states the path of the next one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Annotated, Any, Self
from urllib.parse import urlencode

from fastapi import Path, Query
from pydantic import BaseModel, Field

from function_app.domain.errors import NotFoundError
from function_app.domain.records import DatasetVersion, Generation, RunRecord
from function_app.domain.run_states import RunState
from function_app.explain.overview import MAX_MODEL_RUNS, MAX_MODEL_VERSIONS, Model, models
from function_app.registry.promotion import promote_by_person
from function_app.services import Services
from function_app.web.bodies import RunBody
from function_app.web.routes import RUN_ID, AppServices, DatasetName, refusals
from function_app.web.sweeps import router

__all__ = ["router"]  # the API's, to which this module adds its routes

MAX_RUNS = 1000
MAX_VERSIONS = 1000
MAX_DATASETS = 100
"""The ledger is asked once for each dataset of a page."""
MAX_READ = 10_000
"""Versions of a dataset that are read for its list, and closings for its latest version."""

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
    evidence: dict[str, Any] = Field(description="What the registration was decided on, as of the run.")

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
    current: str | None = Field(description="The version that was promoted last; null where none was.")
    versions: list[ModelVersionBody] = Field(
        description=f"The newest {MAX_MODEL_VERSIONS}, of the newest {MAX_MODEL_RUNS} runs."
    )

    @classmethod
    def of(cls, model: Model) -> Self:
        """Return the body of a model."""
        versions = [ModelVersionBody.of(run) for run in model.runs]
        return cls(name=model.name, current=model.current.version if model.current else None, versions=versions)


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


class VersionSummary(BaseModel):
    """A dataset version in a list."""

    version: str
    state: str = Field(description="open until the version is complete for the first time, then closed.")
    generation: int | None = Field(description="Number of its latest generation; null while it is open.")
    closed_at: datetime | None = Field(description="When that generation was whole.")

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
    latest: VersionSummary | None = Field(description="The version that was whole last; null where none has been.")


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


@router.get("/models")
def registered_models(services: AppServices) -> ModelsBody:
    """List the registered models, each with its newest versions."""
    return ModelsBody(models=[ModelBody.of(model) for model in models(services)])


@router.get("/models/{name}", responses=refusals(404, 422))
def registered_model(name: ModelName, services: AppServices) -> ModelBody:
    """Show a registered model with its newest versions."""
    found = next((model for model in models(services) if model.name == name), None)
    if found is None:
        raise NotFoundError(f"none of the newest {MAX_MODEL_RUNS} runs registered a model {name}")
    return ModelBody.of(found)


@router.post("/models/{name}/versions/{version}/promote", responses=refusals(404, 409, 422))
def promote_version(name: ModelName, version: ModelVersionName, services: AppServices) -> CurrentModelBody:
    """Make a registered version the current one, which serving follows; repeating it changes nothing."""
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
) -> DatasetsBody:
    """List the datasets of all pipelines in service, each with the version that was whole last."""
    names = sorted(name for name in services.pipelines if after is None or name > after)
    shown = [_dataset(name, services) for name in names[:limit]]
    following = _page("datasets", limit=limit, after=shown[-1].dataset) if len(names) > limit else None
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
) -> DatasetVersionsBody:
    """List the versions of a dataset, in descending order of their names; at most 10,000 of them are known here."""
    closings = {one.dataset_version: one for one in islice(services.ledger.latest_generations(dataset), MAX_READ)}
    known = {*islice(services.ledger.versions(dataset), MAX_READ), *closings}
    if not known and dataset not in services.pipelines:
        raise NotFoundError(f"dataset {dataset} matches no pipeline, and has no versions")
    return _versions(dataset, sorted(known, reverse=True), closings, limit=limit, after=after)


def _versions(
    dataset: str,
    known: Sequence[DatasetVersion],
    closings: Mapping[DatasetVersion, Generation],
    *,
    limit: int,
    after: str | None,
) -> DatasetVersionsBody:
    left = [version for version in known if after is None or version.version < after]
    shown = [VersionSummary.of(version, closings.get(version)) for version in left[:limit]]
    following = _page(f"datasets/{dataset}", limit=limit, after=shown[-1].version) if len(left) > limit else None
    return DatasetVersionsBody(dataset=dataset, versions=shown, next=following)


def _page(path: str, **parameters: object) -> str:
    return f"/api/{path}?" + urlencode({name: value for name, value in parameters.items() if value is not None})
