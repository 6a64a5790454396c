"""The pages: each route reads one description and renders one template, after checking the sign-in."""

from __future__ import annotations

import json
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import timedelta
from http import HTTPStatus
from itertools import islice
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, FastAPI, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from function_app.domain.errors import NotFoundError, ProblemsError
from function_app.domain.option_sweeps import MAX_RUNS
from function_app.domain.passports import DIGEST, PASSPORT_TAG, Passport, PassportError, own_digest, to_text
from function_app.domain.records import DatasetVersion
from function_app.domain.run_states import SETTLED, RunState
from function_app.explain.description import describe_version
from function_app.explain.history import why
from function_app.explain.overview import MAX_SCANNED, models, overview
from function_app.explain.pending import awaited_of
from function_app.explain.plan import plan_request
from function_app.explain.rank_logs import read_rank_places
from function_app.explain.run_description import describe_run
from function_app.explain.run_files import output_folders, studio_page, tensorboard_files
from function_app.explain.spending import spending
from function_app.ingest.completeness import SplitDescription, SplitSketch, split_sketches
from function_app.planning.predictions import expected, outcome_of
from function_app.registry.passport import find_passport
from function_app.registry.promotion import current_model, registered_version
from function_app.registry.verification import verify as verification
from function_app.runs.option_sweeps import compare, read_sweep
from function_app.runs.requests import asked_version
from function_app.services import Services
from function_app.web.bodies import PipelinesBody
from function_app.web.drawing import MAX_COMPARED_EPOCHS, charts, compared_charts, plan_charts, shard_grid
from function_app.web.errors import STATUSES, misconfigured
from function_app.web.lists import ModelName, ModelVersionName
from function_app.web.rendering import HEADERS, STATIC, histogram, page, static_file
from function_app.web.routes import RUN_ID, DatasetName, Rank, RunId, VersionName
from function_app.web.sign_in import Person, Role, SignInError, signed_in
from function_app.web.sweeps import ComparedId, OptionSweepBody
from shared.errors import LandfallError

logger = logging.getLogger(__name__)

REFRESH_S = 5
MAX_REFRESH_S = 60
LOAD = 20
"""A page reloads after this many times its build time, so one viewer uses at most 5 % of a core."""
MAX_LETTERS = 100
MAX_LISTED_RUNS = 50
MAX_VERSIONS = 200
MAX_HISTORY = 100
MAX_LABELS = 50
MAX_REJECTED = 100
MAX_CHOICES = 20
MAX_DAYS = 366
MAX_SPENT = 200
MAX_LISTED_SHARDS = 1000
MANY_SHARDS = 1000
"""A page of more comes with their cells alone, and asks for everything else itself."""

SplitName = Annotated[str, Path(min_length=1, max_length=63)]
ShardIndex = Annotated[int, Path(ge=0, lt=2**63)]


class View:
    """One request for a page: the person, the request, and its start time."""

    def __init__(self, request: Request) -> None:
        build: Callable[[], Services] = request.state.services
        self._began_s = time.monotonic()
        self.services = build()
        self.person: Person = signed_in(request.headers, self.services.pages_sign_in)

    def require(self, role: Role) -> None:
        """Raise SignInError if the person lacks a role."""
        if self.person.role < role:
            needed, own = role.name.lower(), self.person.role.name.lower()
            raise SignInError(f"this takes the role {needed}, and yours is {own}", status=403)

    def show(self, template: str, *, is_live: bool, **members: Any) -> Response:
        """Return a page; a live one states after how many seconds to reload."""
        spent_s = time.monotonic() - self._began_s
        refresh_s = min(MAX_REFRESH_S, max(REFRESH_S, math.ceil(spent_s * LOAD)))
        return page(
            template,
            person=self.person,
            now=self.services.clock(),
            currency=self.services.plan_facts.currency,
            refresh_s=refresh_s if is_live else None,
            is_live=is_live,
            **members,
        )


PageView = Annotated[View, Depends(View)]

pages = APIRouter()


@pages.get("/")
def overview_page(view: PageView) -> Response:
    """Show active runs, waiting runs, recent uploads, and problems that need a person."""
    return view.show("overview.html", is_live=True, overview=overview(view.services))


@pages.get("/datasets/{dataset}")
def dataset_page(dataset: DatasetName, view: PageView) -> Response:
    """Show the versions of a dataset, those with the last names first."""
    view.services.pipeline_of(dataset)
    ledger = view.services.ledger
    closed = {closing.dataset_version: closing for closing in islice(ledger.latest_generations(dataset), MAX_SCANNED)}
    known = {*closed, *islice(ledger.versions(dataset), MAX_SCANNED)}
    named = sorted(known, key=lambda version: version.version, reverse=True)
    return view.show(
        "dataset.html",
        is_live=True,
        dataset=dataset,
        versions=[(version, closed.get(version)) for version in named[:MAX_VERSIONS]],
        is_cut=len(named) > MAX_VERSIONS,
    )


@pages.get("/datasets/{dataset}/{version}")
def version_page(
    dataset: DatasetName, version: VersionName, view: PageView, shards: Literal["all"] | None = None
) -> Response:
    """Show a dataset version with a cell for each shard; if it has many, without labels and reasons until asked."""
    named, services = DatasetVersion(dataset=dataset, version=version), view.services
    generation = services.ledger.latest_generation(named)
    num_shards = max(sum(services.ledger.split_sizes(named).values()), generation.num_shards if generation else 0)
    is_brief = shards is None and num_shards > MANY_SHARDS
    described = describe_version(named, services, reads_shards=not is_brief)
    history = services.ledger.history(str(named))
    return view.show(
        "version.html",
        is_live=described.generation is None or any(run.state not in SETTLED for run in described.runs),
        described=described,
        splits=[_drawn(split) for split in described.splits],
        sketches=[_sketched(split) for split in split_sketches(described.pipeline, named, services)]
        if is_brief
        else (),
        awaited=[] if is_brief else list(awaited_of(described, services)),
        history=history[-MAX_HISTORY:][::-1],
        num_older=max(0, len(history) - MAX_HISTORY),
    )


def _sketched(split: SplitSketch) -> dict[str, Any]:
    """Return a split of many shards with its cells."""
    states = Counter(None if row is None else str(row.state) for row in split.verdicts)
    return {"described": split, "grid": shard_grid(split.verdicts), "states": states}


def _drawn(split: SplitDescription) -> dict[str, Any]:
    """Return a split with its drawings."""
    feature = split.statistics.features.get(split.label or "")
    labels = feature.histogram if feature else {}
    return {
        "described": split,
        "grid": shard_grid(split.verdicts),
        "labels": histogram(labels.items(), MAX_LABELS),
        "num_labels": len(labels),
        "rejected": split.rejected[:MAX_REJECTED],
    }


@pages.get("/datasets/{dataset}/{version}/plan")
def plan_page(dataset: DatasetName, version: VersionName, view: PageView) -> Response:
    """Show the time and cost of a run of a version, and the recommended size."""
    plan = plan_request(asked_version(dataset, version, view.services), view.services)
    return view.show(
        "plan.html",
        is_live=False,
        plan=plan,
        charts=plan_charts(plan.estimates),
        outcomes=[(run, outcome) for run in plan.outcomes if (outcome := outcome_of(run)) is not None],
        body=json.dumps(plan.body, indent=1).splitlines(),
    )


@pages.get("/datasets/{dataset}/{version}/shards/{split}/{index}")
def shard_page(
    dataset: DatasetName, version: VersionName, split: SplitName, index: ShardIndex, view: PageView
) -> Response:
    """Show the verdict on one shard with its reasons."""
    named = DatasetVersion(dataset=dataset, version=version)
    shard = view.services.ledger.shard(named, split, index)
    if shard is None:
        raise NotFoundError(f"shard {index} of split {split} of {named} has no verdict: it has not been uploaded yet")
    explained = why(f"{named}/{shard.name}", view.services)
    return view.show("shard.html", is_live=False, shard=shard, explained=explained, most=MAX_HISTORY)


@pages.get("/runs")
def runs_page(
    view: PageView,
    dataset: Annotated[str, Query(max_length=63)] = "",
    state: RunState | Literal[""] = "",
    after: Annotated[str | None, Query(max_length=255, pattern=RUN_ID)] = None,
) -> Response:
    """Show runs, the newest first, all or those of a dataset or in a state."""
    services = view.services
    last = services.ledger.run(after) if after else None
    if after and last is None:
        raise NotFoundError(f"run {after} does not exist")
    found = services.ledger.runs(limit=MAX_LISTED_RUNS, dataset=dataset or None, state=state or None, older_than=last)
    return view.show(
        "runs.html",
        is_live=last is None,
        runs=found,
        dataset=dataset,
        chosen=state,
        after=after,
        following=found[-1].run_id if len(found) == MAX_LISTED_RUNS else None,
        datasets=sorted({*services.pipelines, *([dataset] if dataset else [])}),
        states=list(RunState),
    )


@pages.get("/runs/{run_id}")
def run_page(run_id: RunId, view: PageView, rank: Rank = 0, hosts_from: Rank | None = None) -> Response:
    """Show a run: timeline, curves, attempts, cost, the log of one rank and, on request, each rank's host."""
    described = describe_run(run_id, view.services, rank=rank)
    places = None if hosts_from is None else read_rank_places(run_id, hosts_from, view.services)
    is_live = (not described.is_settled or described.run.notified_at is None) and places is None
    return view.show(
        "run.html",
        is_live=is_live,
        described=described,
        charts=charts(described.epochs),
        expected=expected(described.run),
        outcome=outcome_of(described.run),
        places=places,
        studio=studio_page(described.run, view.services),
        folders=output_folders(described.run),
        tensorboard=tensorboard_files(described.run),
    )


@pages.get("/compare")
def compare_page(
    view: PageView, run: Annotated[tuple[ComparedId, ...], Query()] = (), sweep: ComparedId | None = None
) -> Response:
    """Show runs or an option sweep side by side; with fewer than two runs, also a list to choose from."""
    services = view.services
    swept = OptionSweepBody.of(read_sweep(sweep, services.documents), services) if sweep else None
    comparison = compare([*([sweep] if sweep else []), *run], services)
    rows = comparison.runs
    chosen = {row.run.run_id: row.run for row in rows}
    choices = None
    if swept is None and len(rows) < 2:  # noqa: PLR2004
        choices = list({**chosen, **{each.run_id: each for each in services.ledger.runs(limit=MAX_CHOICES)}}.values())
    return view.show(
        "compare.html",
        is_live=choices is None and (not rows or any(row.run.state not in SETTLED for row in rows)),
        comparison=comparison,
        sweep=swept,
        charts=compared_charts([row.epochs for row in rows]),
        has_rate=any(row.images_per_s is not None for row in rows),
        has_cost=any(row.cost is not None for row in rows),
        is_thinned=any(len(row.epochs) > MAX_COMPARED_EPOCHS for row in rows),
        choices=choices,
        chosen=chosen,
        most=MAX_RUNS,
    )


@pages.get("/costs")
def costs_page(view: PageView, days: Annotated[int, Query(ge=1, le=MAX_DAYS)] = 7) -> Response:
    """Show node-hours and cost of the last days, by dataset and by run."""
    found = spending(timedelta(days=days), view.services)
    return view.show(
        "costs.html", is_live=True, spent=found, days=days, most=MAX_SPENT, any_price=found.cost is not None
    )


@pages.get("/models")
def models_page(view: PageView) -> Response:
    """Show the registered models, current and previous, with their data."""
    return view.show("models.html", is_live=True, models=models(view.services))


@pages.get("/models/{model}/{version}")
def model_version_page(
    model: ModelName, version: ModelVersionName, view: PageView, *, verify: bool = False
) -> Response:
    """Show a registered version: the decision with its evidence, and its passport, recomputed on request."""
    services = view.services
    named, current = registered_version(model, version, services), current_model(model, services.ledger)
    run = services.ledger.run(named.run_id)
    if run is None:
        raise NotFoundError(f"run {named.run_id}, which trained version {version} of model {model}, is not on record")
    passport, problem = _passport(model, version, services)
    standings = {current.version: "current"} if current else {}
    if current and current.previous:
        standings.setdefault(current.previous.version, "previous")
    return view.show(
        "model_version.html",
        is_live=False,
        name=model,
        version=version,
        run=run,
        standing=standings.get(version),
        intervals=run.evidence.get("intervals") or {},
        passport=passport,
        problem=problem,
        decision=passport["decision"] if passport else None,
        checks=verification(model, version, services) if verify and passport else None,
        most=MAX_LISTED_SHARDS,
    )


def _passport(model: str, version: str, services: Services) -> tuple[Passport | None, str | None]:
    """Return an unchanged passport, otherwise the reason why none is shown."""
    try:
        passport, registration = find_passport(model, version, services)
    except (NotFoundError, PassportError) as error:
        return None, str(error)
    if {own_digest(passport)} != {passport[DIGEST], registration.tags[PASSPORT_TAG]}:
        return None, f"It was changed after it was written. To see what differs: landfall verify {model}:{version}"
    return passport, None


@pages.get("/models/{model}/{version}/passport")
def passport_file(model: ModelName, version: ModelVersionName, view: PageView) -> Response:
    """Return a stored passport as a download."""
    passport, _ = find_passport(model, version, view.services)
    named = {"Content-Disposition": f'attachment; filename="passport-{model}-{version}.json"'}
    return Response(to_text(passport), media_type="application/json", headers={**HEADERS, **named})


@pages.get("/pipelines")
def pipelines_page(view: PageView) -> Response:
    """Show which pipelines are in service, and what is wrong with the others."""
    return view.show("pipelines.html", is_live=True, pipelines=PipelinesBody.of_services(view.services).pipelines)


@pages.get("/dead-letters")
def dead_letters_page(view: PageView) -> Response:
    """Show messages and events whose processing was abandoned."""
    letters = view.services.ledger.dead_letters(limit=MAX_LETTERS)
    return view.show("dead_letters.html", is_live=True, letters=letters, most=MAX_LETTERS)


@pages.get("/static/{name}")
def static(name: str) -> Response:
    """Return a public file that every page loads, including the error page."""
    if name not in STATIC:
        raise NotFoundError(f"there is no file {name}")
    return static_file(name)


# -- errors ---------------------------------------------------------------------------------------------------
ADVICE = {
    401: "Sign in, and open the page again.",
    404: "Check the address, or find the name on the overview.",
    409: "Check the current state, and try again.",
    422: "Check the address: names have letters, digits, hyphens and underscores.",
    503: "Storage or Azure ML did not respond, or a setting is wrong: try again in a minute, then check the log.",
}


def add_page_errors(app: FastAPI) -> None:
    """Register handlers so that every error is a page that says what to do."""
    for kind in (LandfallError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, _error_page)


async def _error_page(_: Request, error: Exception) -> Response:
    status, text = _status(error)
    advice = "" if isinstance(error, SignInError) else ADVICE.get(status, "Check the log of the function app.")
    return _error(status, text, advice)


def _error(status: int, text: str, advice: str) -> Response:
    title = HTTPStatus(status).phrase
    return page(
        "error.html", status=status, person=None, refresh_s=None, now=None, title=title, text=text, advice=advice
    )


def too_many_pages(message: str, headers: Mapping[str, str]) -> Response:
    """Return the page for a person who sends too many requests."""
    answer = _error(429, message, f"Wait {headers['Retry-After']} s, and open the page again.")
    answer.headers.update(headers)
    return answer


def _status(error: Exception) -> tuple[int, str]:
    """Return the status and the text of an error; only the log has the details of unexpected ones."""
    if isinstance(error, SignInError):
        return error.status, str(error)
    if isinstance(error, ProblemsError):
        logger.error(f"the app is misconfigured:\n{error}", extra={"action": "misconfigured"})
        return 503, f"{misconfigured(error)}; the log of the function app lists them"
    if isinstance(error, RequestValidationError):
        return 422, "a name in the address is not valid"
    if isinstance(error, HTTPException):
        return error.status_code, "there is no such page"
    status = next((value for kind, (value, _) in STATUSES.items() if isinstance(error, kind)), 0)
    if not status:
        logger.error(f"unexpected error on a page: {error}", exc_info=error, extra={"action": "internal_error"})
        return 500, "an unexpected error"
    return status, str(error)
