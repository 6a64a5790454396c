"""The routes of the HTTP API; their docstrings are the descriptions in its OpenAPI document."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Annotated, Any, Self
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.convertors import Convertor, register_url_convertor

from function_app.domain.errors import NotFoundError
from function_app.domain.records import (
    OVERRIDE,
    PERSON,
    DatasetVersion,
    DeadLetter,
    DeadLetterState,
    dead_letter_order,
)
from function_app.domain.run_states import RunState
from function_app.explain.description import describe_version
from function_app.explain.doctor import Diagnosis, examine
from function_app.explain.history import why as history_of
from function_app.explain.plan import plan_request
from function_app.explain.rank_logs import RankLog, RankPlaces, read_rank_log, read_rank_places
from function_app.notify.trial import try_recipients
from function_app.runs.admission import release_data
from function_app.runs.cancellation import cancel_run
from function_app.runs.late_registration import (
    MAX_WHY_CHARS,
    LateRegistration,
    look_at_registration,
    register_later,
)
from function_app.runs.requests import asked_version, request_run
from function_app.services import Services
from function_app.sweep.dead_letters import replay
from function_app.sweep.requested import latest_sweep, request_sweep
from function_app.web.bodies import (
    DeadLetterBody,
    DeadLetterSummary,
    HistoryBody,
    HoldBody,
    Problem,
    RequestedSweepBody,
    RunBody,
    RunRequest,
    VersionBody,
)
from function_app.web.plans import PlanBody
from function_app.web.protocol.routing import ApiRoute, IdempotencyKey

MAX_LETTERS = 1000
MAX_KEPT_LETTERS = 10_000
"""Maximum dead letters that are read for a page."""
MAX_SUBJECT_CHARS = 1200
"""A blob's name has at most 1,024 characters."""
MAX_RANK = 1_000_000
MAX_LOG_OFFSET = 2**53
HTTP = "http"
"""The trigger of runs that are requested here."""


def _services(request: Request) -> Services:
    build: Callable[[], Services] = request.state.services
    return build()


AppServices = Annotated[Services, Depends(_services)]
"""Built by the first request that needs them, so a misconfigured app can still report its problems."""
DatasetName = Annotated[str, Path(min_length=1, max_length=63)]
VersionName = Annotated[str, Path(min_length=1, max_length=64)]
RUN_ID = r"^[a-zA-Z0-9][a-zA-Z0-9_-]*$"
RunId = Annotated[str, Path(min_length=1, max_length=255, pattern=RUN_ID)]
Rank = Annotated[int, Query(ge=0, le=MAX_RANK, description="Number of the rank, from 0.")]
DeadLetterId = Annotated[str, Path(min_length=1, max_length=64, pattern=r"^[0-9a-f]+$")]
Subject = Annotated[str, Path(min_length=1, max_length=MAX_SUBJECT_CHARS)]


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the description of error responses for the OpenAPI document."""
    return {status: {"model": Problem, "description": REFUSALS[status]} for status in statuses}


REFUSALS = {
    400: "The address, a header or the body cannot be read, because it is not valid UTF-8 or Unicode.",
    404: "The dataset, version, run, subject or dead letter is unknown.",
    405: "The path does not support this method; the header Allow lists the supported ones.",
    409: "The current state does not allow it, or has changed in the meantime.",
    413: "The body is too large.",
    422: "A parameter or a member of the body is not valid, or not allowed by the pipeline.",
    429: "The caller sends too many requests; the header Retry-After says after how many seconds to try again.",
    500: "An unexpected error; the log of the function app describes it.",
    503: "The app or the pipeline cannot be used, or storage or Azure ML did not respond: see the log; try later.",
}


class AnyText(Convertor[str]):
    """The rest of a path. Starlette's own ``path`` stops at a line break, which a blob's name may have."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        """Return the text as it is."""
        return value

    def to_string(self, value: str) -> str:
        """Return the text as it is."""
        return value


register_url_convertor("any_text", AnyText())

NO_KEY = "The function key is missing or wrong. The Functions host sends this response, without a body."
RUN_LOCATION = {"Location": {"description": "Path of the run.", "schema": {"type": "string"}}}
VERSION_LOCATION = {"Location": {"description": "Path of the model's version.", "schema": {"type": "string"}}}
LETTER_LOCATION = {"Location": {"description": "Path of the letter.", "schema": {"type": "string"}}}
SWEEP_LOCATION = {"Location": {"description": "Path of the result.", "schema": {"type": "string"}}}

router = APIRouter(
    prefix="/api",
    route_class=ApiRoute,
    responses={401: {"description": NO_KEY}, **refusals(400, 405, 413, 429, 500, 503)},
)


@router.get("/datasets/{dataset}/{version}", responses=refusals(404, 422))
def dataset_version(dataset: DatasetName, version: VersionName, services: AppServices) -> VersionBody:
    """Show a dataset version: its accepted, missing and rejected shards, and its runs."""
    return VersionBody.of(describe_version(DatasetVersion(dataset=dataset, version=version), services))


@router.post("/datasets/{dataset}/{version}/release", responses=refusals(404, 422))
def release(dataset: DatasetName, version: VersionName, services: AppServices) -> HoldBody:
    """Lift the hold on the latest generation of a version, whose data made a run fail.

    This starts no run: request one afterwards.
    """
    named = DatasetVersion(dataset=dataset, version=version)
    if services.ledger.latest_generation(named) is None:
        raise NotFoundError(f"{named} has never been complete, so it cannot be on hold")
    reason = release_data(named, services)
    return HoldBody(dataset=dataset, version=version, released=reason is not None, reason=reason)


class NotificationTestBody(BaseModel):
    """One recipient's response to a test message."""

    recipient: str
    reached: bool
    answer: str


class NotificationTestsBody(BaseModel):
    """The responses of a pipeline's recipients."""

    tests: list[NotificationTestBody]


@router.post("/pipelines/{dataset}/notifications/test", responses=refusals(404, 409, 422))
def send_test(
    dataset: DatasetName,
    services: AppServices,
    recipient: Annotated[str | None, Query(min_length=1, max_length=140, pattern=r"^[A-Za-z0-9:_]+$")] = None,
) -> NotificationTestsBody:
    """Send a test message to all recipients of a pipeline, or to one, and show their responses.

    The app sends it, with its own identity and secrets, and tries no further recipient after 30 seconds. 409 if one
    was sent less than 10 seconds ago.
    """
    tests = try_recipients(dataset, recipient, services)
    return NotificationTestsBody(
        tests=[NotificationTestBody(recipient=name, reached=reached, answer=said) for name, reached, said in tests]
    )


@router.get("/datasets/{dataset}/{version}/plan", responses=refusals(404, 409, 422))
def plan(dataset: DatasetName, version: VersionName, services: AppServices) -> PlanBody:
    """Show the time and cost of a run of a complete version, on each cluster and number of nodes.

    Synthetic data have the version `synthetic`. Nothing is changed; `POST /api/runs` with `dryRun` plans a request
    with `overrides` or `force`.
    """
    return PlanBody.of(plan_request(asked_version(dataset, version, services), services))


@router.get("/doctor")
def doctor(services: AppServices) -> Diagnosis:
    """Check, with the app's own identity, everything that it needs, such as queues and workspace; at most 45 seconds.

    A check is `ok`, `wrong`, `unknown` (no answer in time) or `absent` (this deployment has no such thing).
    """
    return examine(services)


@router.get("/runs/{run_id}", responses=refusals(404, 422))
def run(run_id: RunId, services: AppServices) -> RunBody:
    """Show the state of a run, how it ended, and its notifications."""
    found = services.ledger.run(run_id)
    if found is None:
        raise NotFoundError(f"run {run_id} does not exist")
    return RunBody.of(found, services.ledger.run_queue(), services.ledger.notifications(run_id))


@router.get("/runs/{run_id}/logs", responses=refusals(404, 422))
def rank_log(
    run_id: RunId,
    services: AppServices,
    rank: Rank = 0,
    after: Annotated[int, Query(ge=0, le=MAX_LOG_OFFSET, description="`next` of the answer before.")] = 0,
) -> RankLog:
    """Show whole lines of a rank's log, at most 256 KiB; ask again with `after` until `has_ended`.

    Secrets are masked. A byte offset within a line starts at the next line.
    """
    return read_rank_log(run_id, rank, after, services)


@router.get("/runs/{run_id}/ranks", responses=refusals(404, 422))
def rank_places(
    run_id: RunId,
    services: AppServices,
    first: Annotated[int, Query(ge=0, le=MAX_RANK, description="`next` of the answer before.")] = 0,
) -> RankPlaces:
    """Show each rank's host and the hosts that it connected to, from its log: 16 ranks, starting at `first`."""
    return read_rank_places(run_id, first, services)


@router.post(
    "/runs",
    status_code=202,
    responses={
        202: {"description": "A new run.", "headers": RUN_LOCATION},
        200: {
            "model": RunBody | PlanBody,
            "description": "The run that was requested before, or the plan of a dry run.",
            "headers": RUN_LOCATION,
        },
        **refusals(404, 409, 422),
    },
)
def start_run(
    body: RunRequest, services: AppServices, response: Response, idempotency_key: IdempotencyKey = None
) -> RunBody | PlanBody:
    """Request a run on a complete version, or on synthetic data: 202 for a new run, 200 if it was requested before.

    Requests with the same Idempotency-Key header lead to the same run; 422 if the key was used for another request.
    With `force` the version is trained again; without the header each forced request starts a new run.
    With `dryRun` nothing is changed: 200 with the plan, whose `problems` say why the request would be refused.
    """
    forced_by = (idempotency_key or uuid.uuid4().hex) if body.force else None
    version = asked_version(body.dataset, body.version, services)
    if body.dry_run:
        response.status_code = 200
        return PlanBody.of(plan_request(version, services, overrides=body.overrides, force=body.force))
    run, is_new = request_run(
        version, body.overrides, trigger=HTTP, services=services, forced_by=forced_by, key=idempotency_key
    )
    response.status_code = 202 if is_new else 200
    response.headers["Location"] = f"/api/runs/{run.run_id}"
    return RunBody.of(run, services.ledger.run_queue())


@router.post(
    "/runs/{run_id}/cancel",
    status_code=202,
    responses={
        202: {"description": "The job is being canceled.", "headers": RUN_LOCATION},
        200: {"model": RunBody, "description": "The run has ended canceled."},
        **refusals(404, 409, 422),
    },
)
def cancel(run_id: RunId, services: AppServices, response: Response) -> RunBody:
    """Cancel a run in any state: 200 if it has ended canceled, 202 while its job is being canceled.

    No further attempt starts afterwards, and no waiting run of the same version; other waiting versions are trained,
    unless the pipeline has `when_busy: latest`. 409 if the run has ended otherwise.
    """
    found = cancel_run(run_id, canceled_by=PERSON, reason="canceled by a person over the API", services=services)
    response.status_code = 200 if found.state is RunState.CANCELED else 202
    if response.status_code == 202:  # noqa: PLR2004
        response.headers["Location"] = f"/api/runs/{found.run_id}"
    return RunBody.of(found, services.ledger.run_queue())


class RegistrationRequest(BaseModel):
    """A person's decision to register a model that the gate refused."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field(
        min_length=1,
        max_length=MAX_WHY_CHARS,
        pattern=r"\S",
        description="The reason, which is stored with the version.",
    )
    dry_run: bool = Field(default=False, alias="dryRun", description="Only say what would be done.")


class RegistrationBody(BaseModel):
    """The result of a registration by a person, or of a dry run."""

    run_id: str
    model_name: str
    model_version: str
    is_registered: bool = Field(description="Whether the version exists now.")
    gate: str | None = Field(description="Why the gate did not register it; null if it did.")
    override: dict[str, str] | None = Field(description="Who overrode the gate, why and when; null if no person did.")
    current: str | None = Field(description="The current version of the model, which stays the same.")
    steps: list[str] = Field(description="What would be done, in words; empty if it was done.")

    @classmethod
    def of(cls, found: LateRegistration, *, is_dry: bool) -> Self:
        """Return the body of a registration."""
        return cls(
            run_id=found.run.run_id,
            model_name=found.model,
            model_version=found.version,
            is_registered=found.is_registered,
            gate=found.gate,
            override=found.run.evidence.get(OVERRIDE),
            current=found.current.version if found.current else None,
            steps=list(found.in_words()) if is_dry else [],
        )


@router.post(
    "/runs/{run_id}/register",
    status_code=201,
    responses={
        201: {"description": "A new version of the model.", "headers": VERSION_LOCATION},
        200: {
            "model": RegistrationBody,
            "description": "The existing version, or the result of a dry run.",
            "headers": VERSION_LOCATION,
        },
        **refusals(404, 409, 422),
    },
)
def register(run_id: RunId, body: RegistrationRequest, services: AppServices, response: Response) -> RegistrationBody:
    """Register the model of a completed run that was not registered: 201, or 200 if a version of it exists already.

    The version's evidence records that a person overrode the gate. The version is not promoted. 409 if the run has
    not ended, has no model, its files are gone, or its training data are not known. With `dryRun` nothing is changed,
    and `steps` say what would be done.
    """
    is_new = False
    if body.dry_run:
        found = look_at_registration(run_id, services)
    else:
        found, is_new = register_later(run_id, services, by="a person over the API", why=body.reason)
    response.status_code = 201 if is_new else 200
    if found.is_registered:
        response.headers["Location"] = f"/api/models/{found.model}/versions/{found.version}"
    return RegistrationBody.of(found, is_dry=body.dry_run)


@router.get("/why/{subject:any_text}", responses=refusals(404, 422))
def why(subject: Subject, services: AppServices) -> HistoryBody:
    """Show the history of <dataset>/<version>, of a run id or of a blob's path, and what it waits for."""
    return HistoryBody.of(history_of(subject, services))


@router.post("/reconcile", status_code=202, responses={202: {"headers": SWEEP_LOCATION}})
def reconcile(services: AppServices, response: Response) -> RequestedSweepBody:
    """Request a sweep, which compares the ledger with storage and Azure ML and repairs the differences.

    Ask `GET /api/reconcile` for its result. A sweep that is queued or running is returned, and no second one starts.
    """
    response.headers["Location"] = "/api/reconcile"
    return RequestedSweepBody.of(request_sweep(services))


@router.get("/reconcile", responses=refusals(404))
def requested_sweep(services: AppServices) -> RequestedSweepBody:
    """Show the last sweep that was requested: `queued`, `running`, `done`, or `failed` with what failed."""
    found = latest_sweep(services)
    if found is None:
        raise NotFoundError("no sweep has been requested; POST /api/reconcile requests one")
    return RequestedSweepBody.of(found)


class DeadLettersBody(BaseModel):
    """Dead letters; those that can be replayed come first."""

    dead_letters: list[DeadLetterSummary]
    next: str | None = Field(description="Path of the next page; null on the last one.")


@router.get("/dead-letters", responses=refusals(404, 422))
def dead_letters(
    services: AppServices,
    *,
    limit: Annotated[int, Query(ge=1, le=MAX_LETTERS)] = 100,
    state: DeadLetterState | None = None,
    source: Annotated[
        str | None, Query(min_length=1, max_length=100, description="Only those of this queue, or `notification`.")
    ] = None,
    after: Annotated[
        str | None, Query(max_length=64, pattern=r"^[0-9a-f]+$", description="Begin after this letter.")
    ] = None,
) -> DeadLettersBody:
    """List dead letters, those that wait first; the next sweep adds those that are still in the queues."""
    last = services.ledger.dead_letter(after) if after else None
    if after and last is None:
        raise NotFoundError(f"dead letter {after} does not exist")
    fitting = [
        letter
        for letter in services.ledger.dead_letters(limit=MAX_KEPT_LETTERS)
        if state in (None, letter.state)
        and source in (None, letter.source)
        and (last is None or _place(letter, state) > _place(last, state))
    ]
    shown, following = fitting[:limit], None
    if len(fitting) > limit:
        asked = {"limit": limit, "state": state, "source": source, "after": shown[-1].dead_letter_id}
        following = "/api/dead-letters?" + urlencode(
            {name: value for name, value in asked.items() if value is not None}
        )
    return DeadLettersBody(dead_letters=[DeadLetterSummary.of(letter) for letter in shown], next=following)


def _place(letter: DeadLetter, state: DeadLetterState | None) -> tuple[float | str, ...]:
    """Return a letter's place in a list; a letter that was replayed in the meantime keeps its place."""
    return dead_letter_order(letter)[0 if state is None else 1 :]


@router.get("/dead-letters/{dead_letter_id}", responses=refusals(404, 422))
def dead_letter(dead_letter_id: DeadLetterId, services: AppServices) -> DeadLetterBody:
    """Show a dead letter with its payload."""
    letter = services.ledger.dead_letter(dead_letter_id)
    if letter is None:
        raise NotFoundError(f"dead letter {dead_letter_id} does not exist")
    return DeadLetterBody.of(letter)


@router.post(
    "/dead-letters/{dead_letter_id}/replay",
    status_code=202,
    responses={
        202: {"description": "Its message is in the queue.", "headers": LETTER_LOCATION},
        **refusals(404, 409),
    },
)
def replay_dead_letter(dead_letter_id: DeadLetterId, services: AppServices, response: Response) -> DeadLetterBody:
    """Deliver a dead letter again. This is safe at any time: the current state is checked first.

    If it fails again, it is opened again with `num_deaths` increased by one.
    """
    response.headers["Location"] = f"/api/dead-letters/{dead_letter_id}"
    return DeadLetterBody.of(replay(dead_letter_id, services))
