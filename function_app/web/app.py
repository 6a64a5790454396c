"""The HTTP API's routes."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, FastAPI, Header, Path, Query, Response
from starlette.types import ASGIApp

from function_app.domain.errors import NotFoundError
from function_app.domain.records import PERSON, DatasetVersion
from function_app.domain.run_states import RunState
from function_app.explain.description import describe_version
from function_app.runs.cancellation import cancel_run
from function_app.runs.requests import asked_version, request_run
from function_app.services import Services
from function_app.web.bodies import Error, NotificationBody, RunBody, RunRequest, RunsBody, VersionBody
from function_app.web.errors import add_error_handlers
from function_app.web.given import Given
from function_app.web.guard import Guard
from function_app.web.operations import router as operations
from function_app.web.why import router as why

MAX_RUNS = 1000
HTTP = "http"
"""The trigger of a run that was asked for here."""

DatasetName = Annotated[str, Path(min_length=1, max_length=63)]
VersionName = Annotated[str, Path(min_length=1, max_length=64)]
RunId = Annotated[str, Path(min_length=1, max_length=255, pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_-]*$")]

IdempotencyKey = Annotated[
    str | None, Header(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9._:-]+$", alias="Idempotency-Key")
]

router = APIRouter(prefix="/api", responses={"4XX": {"model": Error}, "5XX": {"model": Error}})


def build_web_app(services: Callable[[], Services]) -> ASGIApp:
    """Return the web app; ``services`` is called by the requests that need them, so a misconfigured app answers."""
    app = FastAPI(title="Landfall", version="0.1.0", openapi_url="/api/openapi.json", docs_url=None, redoc_url=None)
    app.state.services = services
    for each in (router, operations, why):
        app.include_router(each)
    add_error_handlers(app)
    return Guard(app)


@router.get("/datasets/{dataset}/{version}")
def dataset_version(dataset: DatasetName, version: VersionName, services: Given) -> VersionBody:
    """Say what is there of a dataset version, what is missing, and what was rejected and why."""
    return VersionBody.of(describe_version(DatasetVersion(dataset=dataset, version=version), services))


@router.get("/runs")
def runs(
    services: Given,
    limit: Annotated[int, Query(ge=1, le=MAX_RUNS)] = 100,
    dataset: Annotated[str | None, Query(min_length=1, max_length=63)] = None,
) -> RunsBody:
    """List the newest runs first."""
    return RunsBody(runs=[RunBody.of(run) for run in services.ledger.runs(limit=limit, dataset=dataset)])


@router.get("/runs/{run_id}")
def run(run_id: RunId, services: Given) -> RunBody:
    """Say how a run is doing, or how it ended and who was told."""
    found = services.ledger.run(run_id)
    if found is None:
        raise NotFoundError(f"run {run_id} is not on record")
    told = [
        NotificationBody(**{name: getattr(row, name) for name in NotificationBody.model_fields})
        for row in services.ledger.notifications(run_id)
    ]
    return RunBody.of(found).model_copy(update={"notifications": told})


@router.post("/runs/{run_id}/cancel", status_code=202)
def cancel(run_id: RunId, services: Given, response: Response) -> RunBody:
    """Cancel a run in whatever state it is: 200 where it has ended canceled, 202 while its job is being ended.

    No attempt and no queued run of its pipeline starts by itself afterwards. 409 where the run has ended otherwise.
    """
    found = cancel_run(run_id, canceled_by=PERSON, reason="canceled by a person over the API", services=services)
    response.status_code = 200 if found.state is RunState.CANCELED else 202
    return RunBody.of(found)


@router.post("/runs", status_code=202)
def start_run(
    body: RunRequest, services: Given, response: Response, idempotency_key: IdempotencyKey = None
) -> RunBody:
    """Ask for a run on a whole version or synthetic data: 202 for a new one, 200 where the same was asked for before.

    With ``force`` it trains again on purpose; a call that is repeated under the same Idempotency-Key header means the
    same run. Without the header every forced call is a run of its own.
    """
    forced_by = (idempotency_key or uuid.uuid4().hex) if body.force else None
    version = asked_version(body.dataset, body.version, services)
    run, is_new = request_run(version, body.overrides, trigger=HTTP, services=services, forced_by=forced_by)
    response.status_code = 202 if is_new else 200
    response.headers["Location"] = f"/api/runs/{run.run_id}"
    return RunBody.of(run)
