"""Actions of the pages: each shows a confirmation page and runs when that page is confirmed."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from typing import Annotated
from urllib.parse import parse_qs, quote

from fastapi import APIRouter, Depends, Request
from starlette.responses import RedirectResponse, Response

from function_app.config.pipelines import Pipeline
from function_app.domain.errors import NotFoundError, NotRegistrableError, RunEndedError
from function_app.domain.records import PERSON, DatasetVersion, DeadLetter, Generation, RunRecord
from function_app.domain.run_states import SETTLED
from function_app.explain.plan import plan_request
from function_app.notify.messages import in_words
from function_app.registry.promotion import current_model, promote_by_person, registered_version
from function_app.registry.promotion import history_subject as history_subject_of_model
from function_app.runs.admission import refuse_held, release_data, why_held
from function_app.runs.attempts import attempts_of, known_cost, spent_node_hours
from function_app.runs.cancellation import cancel_run
from function_app.runs.comparison import as_if_ended
from function_app.runs.late_registration import MAX_WHY_CHARS, look_at_registration, register_later
from function_app.runs.mistakes import check_script, refuse_bad_script
from function_app.runs.requests import asked_version, request_run
from function_app.services import Services
from function_app.sweep.dead_letters import history_subject, replay
from function_app.web.lists import ModelName, ModelVersionName
from function_app.web.pages import PageView, View
from function_app.web.routes import HTTP, DatasetName, DeadLetterId, RunId, VersionName
from function_app.web.sign_in import Role, SignInError
from shared.safe_text import counted

_KEY = re.compile(r"[0-9a-f]{32}")

actions = APIRouter()


async def _confirmed(request: Request) -> str:
    """Return the key of the confirmed page. Raises SignInError for a form of another site.

    A browser sends the sign-in with such a form too, but it also states the form's origin.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin", "")
    is_own = site == "same-origin" if site else origin.partition("://")[2] == request.headers.get("host")
    key = parse_qs((await request.body()).decode(errors="replace")).get("key", [""])[0]
    if not is_own or not _KEY.fullmatch(key):
        raise SignInError(
            "the request does not come from a page of this app: open the page and confirm it", status=403
        )
    return key


Confirmed = Annotated[str, Depends(_confirmed)]


def _ask(
    view: View, title: str, *lines: str, do: str, back: str, asks: str | None = None, is_harmful: bool = False
) -> Response:
    """Show what an action does, with a form whose button ``do`` confirms it; ``asks`` is what has to be written."""
    shown = {"title": title, "lines": lines, "do": do, "back": back, "asks": asks, "max_chars": MAX_WHY_CHARS}
    shown["is_harmful"] = is_harmful
    return view.show("confirm.html", is_live=False, key=uuid.uuid4().hex, **shown)


def _record(view: View, subject: str, what: str) -> None:
    """Record who requested which action, before it runs."""
    view.services.history.record(subject, "person_asked", f"{view.person.name} asked on a page {what}")


def _back(path: str) -> Response:
    return RedirectResponse(path, status_code=303)


def _run_path(run_id: str) -> str:
    return f"/runs/{quote(run_id, safe='')}"


def _version_path(version: DatasetVersion) -> str:
    return f"/datasets/{quote(version.dataset, safe='')}/{quote(version.version, safe='')}"


# -- cancel ---------------------------------------------------------------------------------------------------
@actions.get("/runs/{run_id}/cancel")
def ask_to_cancel(run_id: RunId, view: PageView) -> Response:
    """Say what canceling a run does."""
    view.require(Role.SUBMITTER)
    run = _run(run_id, view.services)
    if run.state in SETTLED:
        raise RunEndedError(f"run {run_id} cannot be canceled: it is {run.state}")
    return _ask(
        view,
        f"Cancel run {run_id}?",
        f"It trains {run.dataset_version} on {counted(run.num_nodes, 'node')} of {run.spec.get('compute')} and is "
        f"{run.state}.",
        f"Its job ends, no further attempt starts, and no model is registered. {_spent(run, view.services)}",
        "Other versions that wait are trained.",
        do="Cancel the run",
        is_harmful=True,
        back=_run_path(run_id),
    )


def _spent(run: RunRecord, services: Services) -> str:
    """Return what all attempts of a run have taken so far."""
    spent = [as_if_ended(each, services.clock()) for each in attempts_of(run, services.ledger)]
    cost = known_cost(services.pipelines.get(run.dataset_version.dataset), spent, services.plan_facts)
    money = "" if cost is None else f", {cost:.2f} {services.plan_facts.currency}".rstrip()
    return f"What it has taken so far is spent: {spent_node_hours(spent):.2f} node-hours{money}."


@actions.post("/runs/{run_id}/cancel")
def cancel(run_id: RunId, view: PageView, _: Confirmed) -> Response:
    """Cancel a run."""
    view.require(Role.SUBMITTER)
    run = _run(run_id, view.services)
    _record(view, run.run_id, "to cancel it")
    reason = f"canceled by {view.person.name} on a page"
    cancel_run(run_id, canceled_by=PERSON, reason=reason, services=view.services)
    return _back(_run_path(run_id))


def _run(run_id: str, services: Services) -> RunRecord:
    run = services.ledger.run(run_id)
    if run is None:
        raise NotFoundError(f"run {run_id} does not exist")
    return run


# -- register later -------------------------------------------------------------------------------------------
async def _stated_reason(request: Request) -> str:
    """Return the reason that the form states; empty for a form without one."""
    return parse_qs((await request.body()).decode(errors="replace")).get("why", [""])[0].strip()


@actions.get("/runs/{run_id}/register")
def ask_to_register(run_id: RunId, view: PageView) -> Response:
    """Say what registering a model that the gate refused does."""
    view.require(Role.ADMIN)
    found = look_at_registration(run_id, view.services)
    if found.is_registered:
        return _back(_run_path(run_id))
    asks = "Why do you register it although the gate did not?"
    title = f"Register the model of run {run_id}?"
    return _ask(view, title, *found.in_words(), do="Register the model", back=_run_path(run_id), asks=asks)


@actions.post("/runs/{run_id}/register")
def register(run_id: RunId, view: PageView, _: Confirmed, why: Annotated[str, Depends(_stated_reason)]) -> Response:
    """Register the model of a run that the gate did not register."""
    view.require(Role.ADMIN)
    if not why:
        raise NotRegistrableError("the form states no reason: go back and enter one")
    look_at_registration(run_id, view.services)
    _record(view, run_id, f"to register its model: {why}")
    register_later(run_id, view.services, by=f"{view.person.name} on a page", why=why)
    return _back(_run_path(run_id))


# -- submit ---------------------------------------------------------------------------------------------------
@actions.get("/datasets/{dataset}/{version}/submit")
def ask_to_submit(dataset: DatasetName, version: VersionName, view: PageView) -> Response:
    """Say what another run of a version does and may cost."""
    view.require(Role.SUBMITTER)
    named = DatasetVersion(dataset=dataset, version=version)
    pipeline = view.services.pipeline_of(dataset)
    generation = _trainable(named, pipeline, view.services)
    train, machines = pipeline.train, pipeline.machines
    hours = train.num_nodes * train.timeout_s / 3600
    facts = view.services.plan_facts
    price = facts.price(machines)
    cost = f", {hours * price:.2f} {facts.currency}".rstrip() if price else ""
    return _ask(
        view,
        f"Train on {named} again?",
        f"A new run of pipeline {pipeline.pipeline} trains on generation {generation.number} "
        f"({generation.num_records:,} records), even if the same was trained before. It waits in the run queue.",
        f"It takes {counted(train.num_nodes, 'node')} of {machines.cluster} ({machines.vm_size}) for at most "
        f"{in_words(train.timeout_s)}: at most {hours:.1f} node-hours{cost} for each attempt.",
        *_planned(named, view.services),
        do="Train",
        back=_version_path(named),
    )


@actions.post("/datasets/{dataset}/{version}/submit")
def submit(dataset: DatasetName, version: VersionName, view: PageView, key: Confirmed) -> Response:
    """Request a run; confirming one page twice requests one."""
    view.require(Role.SUBMITTER)
    named = DatasetVersion(dataset=dataset, version=version)
    _trainable(named, view.services.pipeline_of(dataset), view.services)
    _record(view, str(named), f"to train on it again, request {key}")
    run, _ = request_run(named, {}, trigger=HTTP, services=view.services, forced_by=key, key=key)
    return _back(_run_path(run.run_id))


def _planned(version: DatasetVersion, services: Services) -> Iterator[str]:
    """Yield what the plan of a run expects, where it can say so."""
    plan = plan_request(asked_version(version.dataset, version.version, services), services)
    own = plan.own
    if own is not None and own.total_s is not None:
        cost = "" if own.cost is None else f" and {own.cost:.2f} {plan.currency}".rstrip()
        yield f"The plan expects {in_words(own.total_s)}{cost}, with node start and idle time."


def _trainable(version: DatasetVersion, pipeline: Pipeline, services: Services) -> Generation:
    """Return the closing to train on. Refuse a hold and script errors, which a forced request would ignore."""
    generation = services.ledger.latest_generation(version)
    if generation is None:
        raise NotFoundError(
            f"{version} has never been complete, so it cannot be trained on; its page says what is missing"
        )
    refuse_held(generation, services.ledger)
    refuse_bad_script(pipeline, check_script(pipeline, services.read_script, services.read_modules))
    return generation


# -- promote --------------------------------------------------------------------------------------------------
@actions.get("/models/{model}/{version}/promote")
def ask_to_promote(model: ModelName, version: ModelVersionName, view: PageView) -> Response:
    """Say what a promotion does."""
    view.require(Role.ADMIN)
    named = registered_version(model, version, view.services)
    current = current_model(model, view.services.ledger)
    instead = f"Now it is version {current.version} of run {current.run_id}." if current else "Now none is."
    return _ask(
        view,
        f"Make version {version} of model {model} the current one?",
        f"It was trained by run {named.run_id}. {instead}",
        "The tag landfall.current moves to it at once, and what serves the model by that tag follows. "
        "Later models are compared with it.",
        do="Promote the version",
        back="/models",
    )


@actions.post("/models/{model}/{version}/promote")
def promote_model(model: ModelName, version: ModelVersionName, view: PageView, _: Confirmed) -> Response:
    """Make a version the current one."""
    view.require(Role.ADMIN)
    _record(view, history_subject_of_model(model), f"to promote version {version}")
    promote_by_person(model, version, view.services, by=f"{view.person.name} on a page")
    return _back("/models")


# -- release a hold -------------------------------------------------------------------------------------------
@actions.get("/datasets/{dataset}/{version}/release")
def ask_to_release(dataset: DatasetName, version: VersionName, view: PageView) -> Response:
    """Say what lifting the hold of a version does."""
    view.require(Role.ADMIN)
    named = DatasetVersion(dataset=dataset, version=version)
    generation = view.services.ledger.latest_generation(named)
    held = why_held(named, generation.number, view.services.ledger) if generation else None
    if held is None:
        raise NotFoundError(f"{named} is not on hold")
    lines = (
        f"It is on hold, because {held}.",
        "Runs on it can be requested again. Lifting the hold starts no run.",
    )
    return _ask(view, f"Lift the hold on {named}?", *lines, do="Lift the hold", back=_version_path(named))


@actions.post("/datasets/{dataset}/{version}/release")
def release(dataset: DatasetName, version: VersionName, view: PageView, _: Confirmed) -> Response:
    """Lift the hold of a version."""
    view.require(Role.ADMIN)
    named = DatasetVersion(dataset=dataset, version=version)
    _record(view, str(named), "to lift its hold")
    release_data(named, view.services)
    return _back(_version_path(named))


# -- replay ---------------------------------------------------------------------------------------------------
@actions.get("/dead-letters/{dead_letter_id}/replay")
def ask_to_replay(dead_letter_id: DeadLetterId, view: PageView) -> Response:
    """Say what a replay does."""
    view.require(Role.ADMIN)
    letter = _letter(dead_letter_id, view.services)
    return _ask(
        view,
        f"Replay dead letter {dead_letter_id}?",
        f"Its message about {letter.subject or 'an unknown subject'} is sent to {letter.source} again. "
        "The current state is checked first, so nothing is done twice.",
        f"Its last error was: {letter.error}. If the cause remains, it fails again.",
        do="Replay the dead letter",
        back="/dead-letters",
    )


@actions.post("/dead-letters/{dead_letter_id}/replay")
def replay_letter(dead_letter_id: DeadLetterId, view: PageView, _: Confirmed) -> Response:
    """Deliver a dead letter again."""
    view.require(Role.ADMIN)
    letter = _letter(dead_letter_id, view.services)
    _record(view, history_subject(letter), f"to replay dead letter {dead_letter_id}")
    replay(dead_letter_id, view.services)
    return _back("/dead-letters")


def _letter(dead_letter_id: str, services: Services) -> DeadLetter:
    letter = services.ledger.dead_letter(dead_letter_id)
    if letter is None:
        raise NotFoundError(f"dead letter {dead_letter_id} does not exist")
    return letter
