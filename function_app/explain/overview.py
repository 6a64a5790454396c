"""The overview: what trains, what waits and for whom, what arrived last, and what needs a person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import islice

from function_app.domain.failures import FailureClass
from function_app.domain.model_versions import CurrentModel
from function_app.domain.outcomes import OTHER, OUTCOMES, page_of
from function_app.domain.records import DatasetVersion, DeadLetterState, Generation, RunRecord, ShardState
from function_app.domain.run_queue import RunQueue
from function_app.domain.run_states import SETTLED, RunState
from function_app.ingest.completeness import refusal_messages
from function_app.planning.predictions import expected
from function_app.registry.promotion import current_model
from function_app.runs.admission import place_in_line, why_held
from function_app.services import Services

MAX_RUNS = 200
"""Newest runs that the overview reads; a strip is made from those of its pipeline."""
MAX_STRIP = 20
MAX_MODEL_RUNS = 1000
MAX_MODEL_VERSIONS = 10
MAX_ACTIVE = 50
MAX_VERSIONS = 20
MAX_SCANNED = 1000
"""Versions that are read, and closings of each dataset: the ledger returns 1,000 with one request."""
MAX_COUNTED = 10
"""Incomplete versions whose shards are counted, those with the last names first."""
MAX_SHARDS = 1000
"""Shards of a version that are counted; the ledger returns so many with one request."""
MAX_JUDGED = 5
"""Latest closings of which holds and refusals are looked up."""
MAX_LETTERS = 1000
MAX_UNSENT = 100
_DATA = frozenset({FailureClass.DATA, FailureClass.DATA_CHANGED})
"""Failures that a corrected upload fixes."""
_NEEDS_A_PERSON = frozenset({RunState.FAILED, RunState.LOST, RunState.NOT_REGISTERED})


class Who(StrEnum):
    """Who has to do something."""

    DATA_OWNER = "data owner"
    ENGINEER = "engineer"


@dataclass(frozen=True, kw_only=True)
class Concern:
    """Something that a person has to look at."""

    who: Who
    text: str
    page: str
    """Path of the page that says more."""


@dataclass(frozen=True, kw_only=True)
class ActiveRun:
    """A run that has not ended."""

    run: RunRecord
    waiting: str | None
    """What it waits for in line; None where it is not in line."""
    predicted_s: float | None = None
    """How long its job takes, as was predicted when it was submitted; None where nothing was."""


@dataclass(frozen=True, kw_only=True)
class OpenVersion:
    """A version that has never been whole, with its first `MAX_SHARDS` verdicts counted; zeros where none were."""

    version: DatasetVersion
    accepted: int = 0
    rejected: int = 0
    first_rejected: str | None = None
    """Its name, and why."""
    num_shards: int | None = None
    """How many shards its splits have, as far as that is known."""
    last_at: datetime | None = None
    """When the last of them was judged."""
    num_today: int = 0
    """Shards that were judged today, in UTC."""
    is_counted: bool = False
    """False for old versions, and if there are more shards than were counted."""


@dataclass(frozen=True, kw_only=True)
class Arrived:
    """What came today, in UTC, among the versions of the overview."""

    versions: int
    """Versions that became complete, with their ``shards`` and ``records``."""
    shards: int
    records: int
    open_shards: int
    """Shards of versions that are not whole."""


@dataclass(frozen=True, kw_only=True)
class Strip:
    """A pipeline and its last runs, the oldest first."""

    dataset: str
    pipeline: str
    runs: tuple[RunRecord, ...]


@dataclass(frozen=True, kw_only=True)
class Overview:
    """Everything on one page."""

    concerns: tuple[Concern, ...]
    active: tuple[ActiveRun, ...]
    num_active: int
    closed: tuple[Generation, ...]
    """The latest closings, the last first."""
    open: tuple[OpenVersion, ...]
    num_open: int
    arrived: Arrived
    runs: tuple[RunRecord, ...]
    """The newest ones, newest first."""
    strips: tuple[Strip, ...]


@dataclass(frozen=True, kw_only=True)
class Model:
    """A registered model: the runs whose models are its versions, the newest first."""

    name: str
    runs: tuple[RunRecord, ...]
    current: CurrentModel | None
    """The version that was promoted last; None if none was."""


def models(services: Services) -> list[Model]:
    """Return the registered models among the newest runs, by name, each with its newest versions."""
    found: dict[str, list[RunRecord]] = {}
    for run in services.ledger.runs(limit=MAX_MODEL_RUNS):
        if run.state is RunState.REGISTERED and run.model_name is not None:
            found.setdefault(run.model_name, []).append(run)
    return [
        Model(name=name, runs=tuple(runs[:MAX_MODEL_VERSIONS]), current=current_model(name, services.ledger))
        for name, runs in sorted(found.items())
    ]


def overview(services: Services) -> Overview:
    """Return the overview, with a few requests for each pipeline."""
    ledger = services.ledger
    runs, queue = ledger.runs(limit=MAX_RUNS), ledger.run_queue()
    active = [run for run in runs if run.state not in SETTLED]
    closings = [one for name in services.pipelines for one in islice(ledger.latest_generations(name), MAX_SCANNED)]
    closed = {closing.dataset_version for closing in closings}
    still_open = [version for version in islice(ledger.versions(), MAX_SCANNED) if version not in closed]
    last = sorted(still_open, key=lambda version: version.version, reverse=True)[:MAX_VERSIONS]
    shown = tuple(_open(version, services, counts=number < MAX_COUNTED) for number, version in enumerate(last))
    newest = sorted(closings, key=lambda closing: closing.closed_at, reverse=True)[:MAX_VERSIONS]
    return Overview(
        concerns=(*_concerns(runs, services), *_of_data(shown, newest, services)),
        active=tuple(_active(run, queue) for run in active[:MAX_ACTIVE]),
        num_active=len(active),
        closed=tuple(newest),
        open=shown,
        num_open=len(still_open),
        arrived=_arrived(closings, shown, services),
        runs=tuple(runs[:MAX_ACTIVE]),
        strips=tuple(_strips(runs, services)),
    )


def _active(run: RunRecord, queue: RunQueue) -> ActiveRun:
    predicted = expected(run)
    return ActiveRun(
        run=run, waiting=place_in_line(run, queue), predicted_s=None if predicted is None else predicted.run_s
    )


def _open(version: DatasetVersion, services: Services, *, counts: bool) -> OpenVersion:
    if not counts:
        return OpenVersion(version=version)
    rows = list(islice(services.ledger.shards(version), MAX_SHARDS))
    rejected = sorted((row for row in rows if row.state is ShardState.REJECTED), key=lambda row: row.name)
    first = rejected[0] if rejected else None
    reason = first.reasons[0].message if first and first.reasons else "no reason is recorded"
    today = services.clock().date()
    return OpenVersion(
        version=version,
        accepted=len(rows) - len(rejected),
        rejected=len(rejected),
        first_rejected=None if first is None else reason if first.name in reason else f"{first.name}: {reason}",
        num_shards=sum(services.ledger.split_sizes(version).values()) or None,
        last_at=max((row.validated_at for row in rows), default=None),
        num_today=sum(row.validated_at.date() == today for row in rows),
        is_counted=len(rows) < MAX_SHARDS,
    )


def _arrived(closings: Sequence[Generation], shown: Sequence[OpenVersion], services: Services) -> Arrived:
    today = services.clock().date()
    whole = [closing for closing in closings if closing.closed_at.date() == today]
    return Arrived(
        versions=len(whole),
        shards=sum(closing.num_shards for closing in whole),
        records=sum(closing.num_records for closing in whole),
        open_shards=sum(version.num_today for version in shown),
    )


def _of_data(shown: Sequence[OpenVersion], newest: Sequence[Generation], services: Services) -> Iterator[Concern]:
    """Yield what the owners of data have to fix: rejected shards, refused sets, versions on hold."""
    for each in shown:
        page = f"/datasets/{each.version}"
        if each.rejected:
            number = "1 shard is" if each.rejected == 1 else f"{each.rejected} shards are"
            text = f"{each.version}: {number} rejected; {each.first_rejected}"
            yield Concern(who=Who.DATA_OWNER, text=text, page=page)
        elif each.is_counted and (refused := refusal_messages(each.version, services.ledger)):
            yield Concern(who=Who.DATA_OWNER, text=f"{each.version} is refused as a set: {refused[0]}", page=page)
    for closing in newest[:MAX_JUDGED]:
        version = closing.dataset_version
        if held := why_held(version, closing.number, services.ledger):
            page = f"/datasets/{version}"
            yield Concern(who=Who.DATA_OWNER, text=f"{version} is on hold, because {held}", page=page)


def _strips(runs: Sequence[RunRecord], services: Services) -> Iterator[Strip]:
    for dataset, pipeline in sorted(services.pipelines.items()):
        own = [run for run in runs if run.dataset_version.dataset == dataset]
        yield Strip(dataset=dataset, pipeline=pipeline.pipeline, runs=tuple(reversed(own[:MAX_STRIP])))


def _concerns(runs: Sequence[RunRecord], services: Services) -> Iterator[Concern]:
    if broken := len(services.out_of_service):
        subject = "1 pipeline file is" if broken == 1 else f"{broken} pipeline files are"
        yield Concern(who=Who.ENGINEER, text=f"{subject} out of service", page="/pipelines")
    letters = services.ledger.dead_letters(limit=MAX_LETTERS)
    if waiting := sum(letter.state is DeadLetterState.WAITING for letter in letters):
        number = f"{waiting} or more" if waiting == MAX_LETTERS else str(waiting)
        text = f"{number} dead letter{'s wait' if waiting > 1 else ' waits'} for a replay"
        yield Concern(who=Who.ENGINEER, text=text, page="/dead-letters")
    yield from _ended_badly(runs)
    for unsent in islice(services.ledger.unsent_notifications(), MAX_UNSENT):
        if unsent.last_error:
            known = OUTCOMES.get(unsent.outcome)
            page = page_of(known.about if known else OTHER, unsent.subject)
            text = f"{unsent.recipient} did not accept the notification of {unsent.subject}: {unsent.last_error}"
            yield Concern(who=Who.ENGINEER, text=text, page=page)


def _ended_badly(runs: Sequence[RunRecord]) -> Iterator[Concern]:
    """Yield each dataset's last ended run if a person has to look at it; a later success settles earlier failures."""
    seen: set[str] = set()
    for run in runs:
        dataset = run.dataset_version.dataset
        if run.state not in SETTLED or run.state is RunState.SUPPRESSED or run.next_run_id or dataset in seen:
            continue
        seen.add(dataset)
        if run.state in _NEEDS_A_PERSON:
            state = str(run.state).replace("_", " ")
            text = f"The last run of {dataset} ended {state}: {run.reason or 'no reason is recorded'}"
            who = Who.DATA_OWNER if run.failure_class in _DATA else Who.ENGINEER
            yield Concern(who=who, text=text, page=f"/runs/{run.run_id}")
