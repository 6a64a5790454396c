"""The sweep: find work whose event was lost, and do it with the same functions that events call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from function_app.config.pipelines import Pipeline
from function_app.domain.records import DatasetVersion, Generation, RunRecord
from function_app.domain.run_states import AWAITING_SUBMISSION, Actor
from function_app.ingest.closing import close_version, follow_up
from function_app.ingest.rejections import sum_up_rejections
from function_app.notify.outbox import deliver_rest
from function_app.notify.summaries import send_summaries
from function_app.registry.promotion import finish_promotions
from function_app.runs.admission import sweep_run_queue
from function_app.runs.following import follow_run
from function_app.runs.submission import submit_run
from function_app.services import IngestServices, Services
from function_app.sweep.dead_letters import collect_dead_letters
from function_app.sweep.inventory import Inventory, look_at, remember, unchanged_closing
from function_app.sweep.missed_uploads import noted, send_missed
from function_app.sweep.unknown_jobs import care_for_unknown_jobs
from function_app.sweep.watchdog import warn_if_stalled, watch_pipelines, watch_run
from shared.errors import LandfallError
from shared.safe_text import counted
from shared.traces import place_of_run

_Thing = TypeVar("_Thing")


class SweepError(LandfallError):
    """Parts of a sweep failed; the other parts are done, and the next sweep tries again."""


@dataclass(frozen=True, kw_only=True)
class SweepReport:
    """What a sweep found and did."""

    shards_missed: int
    versions: int
    versions_unchanged: int
    runs: int
    notifications: int
    dead_letters: int
    unknown_jobs: int
    problems: tuple[str, ...]


def sweep(services: Services) -> None:
    """Compare the ledger with storage and Azure ML, and repair the difference. Raises SweepError at the end."""
    problems = run_sweep(services).problems
    if problems:
        raise SweepError(f"{counted(len(problems), 'part')} of the sweep failed; the first: {problems[0]}")


def run_sweep(services: Services) -> SweepReport:
    """Run a sweep and return a report that lists what failed."""
    ledger, problems, tally = services.ledger, list[str](), Counter[str]()
    inventory = Inventory()

    def each(name: str, things: Iterable[_Thing], care: Callable[[_Thing], object]) -> None:
        problems.extend(_each(_counted(things, name, tally), care))

    shards_missed, failures = send_missed(services, inventory)
    problems += failures
    each("versions", ledger.versions(), lambda version: _care_for_version(version, inventory, services))
    each("runs", ledger.unfinished_runs(), lambda run: _care_for_run(run, services))
    problems += _each([services], sweep_run_queue)
    problems += _each([services], watch_pipelines)
    problems += _each([services], finish_promotions)
    for name, care in (("unknown_jobs", care_for_unknown_jobs), ("dead_letters", collect_dead_letters)):
        problems.extend(_each([services], lambda world, name=name, care=care: tally.update({name: care(world)})))  # type: ignore[misc]
    problems += _each([services], send_summaries)
    unsent: list[str] = []
    problems += _each([services], lambda world: unsent.extend(_sent(world, tally)))
    problems += unsent
    return SweepReport(
        shards_missed=shards_missed,
        versions=tally["versions"],
        versions_unchanged=len(inventory.unchanged),
        runs=tally["runs"],
        notifications=tally["notifications"],
        dead_letters=tally["dead_letters"],
        unknown_jobs=tally["unknown_jobs"],
        problems=tuple(problems),
    )


def _sent(services: Services, tally: Counter[str]) -> list[str]:
    """Send what is left of the outbox; return what failed."""
    tally["notifications"], problems = deliver_rest(services)
    return problems


def _counted(things: Iterable[_Thing], name: str, tally: Counter[str]) -> Iterator[_Thing]:
    for thing in things:
        tally[name] += 1
        yield thing


def _each(things: Iterable[_Thing], care: Callable[[_Thing], object]) -> list[str]:
    """Call ``care`` for each thing; return the message of each failure."""
    problems = list[str]()
    with noted(problems):
        for thing in things:
            with noted(problems):
                care(thing)
    return problems


def _care_for_version(version: DatasetVersion, inventory: Inventory, services: IngestServices) -> None:
    pipeline = services.pipelines.get(version.dataset)
    if pipeline is None:
        return
    generation = unchanged_closing(version, pipeline, services, inventory)
    if generation is not None:
        inventory.unchanged[version] = generation
    else:
        generation = _looked_after(pipeline, version, inventory, services)
    if generation is not None and services.clock() - generation.closed_at >= services.sweep_grace:
        follow_up(pipeline, generation, services)


def _looked_after(
    pipeline: Pipeline, version: DatasetVersion, inventory: Inventory, services: IngestServices
) -> Generation | None:
    """Close a version that is complete, warn of one that is stalled; return the closing that needs its follow-up."""
    look = look_at(version, pipeline, services, inventory)
    if look.last_rejected_at is not None:
        sum_up_rejections(pipeline, version, look.last_rejected_at, services)
    generation = services.ledger.latest_generation(version)
    is_listed = pipeline.data.layout.has_any_names  # storage alone says whether such a version has changed
    if generation is None or is_listed or look.has_changed_since(generation):
        closed = close_version(pipeline, version, services)
        if closed is None:
            warn_if_stalled(pipeline, version, look, services)
            # The version is open again, and the follow-up of its closing may have been lost. For a Delta table, the
            # next closing starts the run instead.
            return None if pipeline.data.layout.kind == "delta" else generation
        if closed == generation and not look.num_rejected:
            remember(version, closed, look, services)  # identical bytes came again
        return None
    if look.num_rejected:
        warn_if_stalled(pipeline, version, look, services)
    else:
        remember(version, generation, look, services)
    return generation


def _care_for_run(run: RunRecord, services: Services) -> None:
    services.telemetry.measure(
        "landfall.run.age", (services.clock() - run.state_since).total_seconds(), state=run.state
    )
    if run.state not in AWAITING_SUBMISSION:
        place = place_of_run(run.dataset_version, run.run_id)
        with services.telemetry.span("run event", place, is_kept=False, run_id=run.run_id, by=Actor.SWEEP) as span:
            followed = follow_run(run, services, by=Actor.SWEEP)
            if span is not None:
                span.is_kept = span.is_kept or followed.state is not run.state
                span.set(state_before=run.state, state=followed.state)
        watch_run(followed, services)
    elif services.clock() - run.state_since >= services.sweep_grace:
        submit_run(run, services, by=Actor.SWEEP)
