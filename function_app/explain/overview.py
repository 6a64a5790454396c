"""The overview: what trains, what waits and for whom, what arrived last, and what needs a person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from function_app.domain.model_versions import CurrentModel
from function_app.domain.records import DatasetVersion, DeadLetterState, Generation, RunRecord
from function_app.domain.run_states import SETTLED, RunState
from function_app.registry.promotion import current_model
from function_app.runs.admission import place_in_line
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
MAX_LETTERS = 1000
MAX_UNSENT = 100
_NEEDS_A_PERSON = frozenset({RunState.FAILED, RunState.LOST, RunState.NOT_REGISTERED})


@dataclass(frozen=True, kw_only=True)
class Concern:
    """Something that a person has to look at."""

    text: str
    page: str
    """Path of the page that says more."""


@dataclass(frozen=True, kw_only=True)
class ActiveRun:
    """A run that has not ended."""

    run: RunRecord
    waiting: str | None
    """What it waits for in line; None where it is not in line."""


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
    open: tuple[DatasetVersion, ...]
    """Versions that have never been whole."""
    num_open: int
    strips: tuple[Strip, ...]


@dataclass(frozen=True, kw_only=True)
class Model:
    """A registered model: the runs whose models are its versions, the newest first."""

    name: str
    runs: tuple[RunRecord, ...]
    current: CurrentModel | None
    """The version that was promoted last; None where none was."""


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
    return Overview(
        concerns=tuple(_concerns(runs, services)),
        active=tuple(ActiveRun(run=run, waiting=place_in_line(run, queue)) for run in active[:MAX_ACTIVE]),
        num_active=len(active),
        closed=tuple(sorted(closings, key=lambda closing: closing.closed_at, reverse=True)[:MAX_VERSIONS]),
        open=tuple(sorted(still_open, key=lambda version: version.version, reverse=True)[:MAX_VERSIONS]),
        num_open=len(still_open),
        strips=tuple(_strips(runs, services)),
    )


def _strips(runs: Sequence[RunRecord], services: Services) -> Iterator[Strip]:
    for dataset, pipeline in sorted(services.pipelines.items()):
        own = [run for run in runs if run.dataset_version.dataset == dataset]
        yield Strip(dataset=dataset, pipeline=pipeline.pipeline, runs=tuple(reversed(own[:MAX_STRIP])))


def _concerns(runs: Sequence[RunRecord], services: Services) -> Iterator[Concern]:
    if broken := len(services.out_of_service):
        subject = "1 pipeline file is" if broken == 1 else f"{broken} pipeline files are"
        yield Concern(text=f"{subject} out of service", page="/pipelines")
    letters = services.ledger.dead_letters(limit=MAX_LETTERS)
    if waiting := sum(letter.state is DeadLetterState.WAITING for letter in letters):
        number = f"{waiting} or more" if waiting == MAX_LETTERS else str(waiting)
        text = f"{number} dead letter{'s wait' if waiting > 1 else ' waits'} for a replay"
        yield Concern(text=text, page="/dead-letters")
    yield from _ended_badly(runs)
    for unsent in islice(services.ledger.unsent_notifications(), MAX_UNSENT):
        if unsent.last_error:
            page = f"/datasets/{unsent.subject}" if "/" in unsent.subject else f"/runs/{unsent.subject}"
            text = f"{unsent.recipient} did not accept the notification of {unsent.subject}: {unsent.last_error}"
            yield Concern(text=text, page=page)


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
            yield Concern(text=text, page=f"/runs/{run.run_id}")
