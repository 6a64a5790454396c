"""What is known of a run, for people: its phases, its epochs, its log, its attempts, and what it costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from function_app.domain.errors import NotFoundError, ServiceUnavailableError
from function_app.domain.jobs import report_path, spec_from_json
from function_app.domain.records import NotificationRecord, RunRecord
from function_app.domain.run_states import SETTLED, RunState
from function_app.explain.pending import awaited_of_run
from function_app.explain.rank_logs import check_rank, lines_of, log_part, place_of, ranks_of
from function_app.runs.attempts import known_cost, spent_node_hours
from function_app.runs.comparison import as_if_ended, finite
from function_app.services import Services
from shared.errors import LandfallError
from shared.progress import PREFIX, RANK_PREFIX, RankPlace, parse_progress
from shared.training_report import MAX_REPORT_BYTES, TrainingReport, TrainingReportError

MAX_LOG_BYTES = 256 << 10
MAX_LOG_LINES = 200
MAX_LINE_CHARS = 1000
MAX_EPOCHS = 1000
MAX_ATTEMPTS = 20
MAX_SEARCHED = 200
_NOT_SHOWN = (PREFIX, RANK_PREFIX)
_WORDED = {
    "loss": "loss",
    "accuracy": "accuracy",
    "val_loss": "validation loss",
    "val_accuracy": "validation accuracy",
    "images_per_s": "images/s",
}
"""What the log says of a progress line: measure, and its name for people."""

Epoch = Mapping[str, float]
"""``epoch`` and what was measured: ``loss``, ``accuracy``, ``val_loss``, ``val_accuracy``, ``images_per_s``."""


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One phase of a run."""

    name: str
    since: datetime
    until: datetime | None
    """None while it lasts."""
    duration_s: float


@dataclass(frozen=True, kw_only=True)
class RunDescription:
    """One run."""

    run: RunRecord
    is_settled: bool
    awaited: tuple[str, ...]
    attempts: tuple[RunRecord, ...]
    """All attempts of the same logical run, the first one first."""
    previous: RunRecord | None
    """The one before it, of the same pipeline, whose model was registered last; None without any."""
    phases: tuple[Phase, ...]
    epochs: tuple[Epoch, ...]
    """Those that have ended."""
    newest: Epoch | None
    """The newest progress line: also ``step`` and ``epochs``, the number of epochs in all; None without any."""
    rank: int
    """Whose log this is."""
    num_ranks: int
    place: RankPlace | None
    """Where the rank says that it runs."""
    log: tuple[str, ...]
    """The last lines of the rank's log, progress lines in words."""
    log_problem: str | None
    """Why the log cannot be shown."""
    node_hours: float
    """Those of all attempts so far, as is ``cost``."""
    cost: float | None
    """In the currency of prices.yaml; None where no file has a price for its clusters."""
    notifications: tuple[NotificationRecord, ...]


def describe_run(run_id: str, services: Services, *, rank: int = 0) -> RunDescription:
    """Return what ledger, training report and logs say, with the log of one rank. Raises NotFoundError."""
    run = services.ledger.run(run_id)
    if run is None:
        raise NotFoundError(f"run {run_id} does not exist")
    check_rank(run, rank)
    now, attempts = services.clock(), tuple(_attempts(run, services))
    log, place, problem = _log(run, rank, services)
    epochs, newest = _measured(run, log if rank == 0 else _log(run, 0, services)[0], services)
    spent = [as_if_ended(each, now) for each in attempts]
    pipeline = services.pipelines.get(run.dataset_version.dataset)
    return RunDescription(
        run=run,
        is_settled=run.state in SETTLED,
        awaited=tuple(awaited_of_run(run, services)),
        attempts=attempts,
        previous=_previous(run, services),
        phases=tuple(_phases(run, now)),
        epochs=epochs,
        newest=newest,
        rank=rank,
        num_ranks=ranks_of(run),
        place=place,
        log=tuple(line[:MAX_LINE_CHARS] for line in map(_worded, log) if line is not None)[-MAX_LOG_LINES:],
        log_problem=problem,
        node_hours=spent_node_hours(spent),
        cost=known_cost(pipeline, spent, services.plan_facts),
        notifications=tuple(services.ledger.notifications(run_id)),
    )


def measured_epochs(run_id: str, services: Services) -> tuple[RunRecord, tuple[Epoch, ...], Epoch | None]:
    """Return a run, its newest epochs that have ended, and its newest progress line. Raises NotFoundError."""
    run = services.ledger.run(run_id)
    if run is None:
        raise NotFoundError(f"run {run_id} does not exist")
    return run, *_measured(run, _log(run, 0, services)[0], services)


def _measured(run: RunRecord, log: Iterable[str], services: Services) -> tuple[tuple[Epoch, ...], Epoch | None]:
    """Return the epochs that the root's log reports, and after the end the training report; and the newest line."""
    ended, newest = _progress(log)
    epochs = {**ended, **(_reported(run, services) if run.state in SETTLED else {})}
    return tuple(epochs[number] for number in sorted(epochs))[-MAX_EPOCHS:], newest


def _worded(line: str) -> str | None:
    """Return a line of a log as people read it; None for one that is for programs alone."""
    progress = parse_progress(line)
    if progress is None:
        return None if line.startswith(_NOT_SHOWN) else line
    numbers = finite(asdict(progress))
    parts = [f"{name} {_figure(numbers[measure])}" for measure, name in _WORDED.items() if measure in numbers]
    where = " of ".join(f"{numbers[name]:.0f}" for name in ("epoch", "epochs") if name in numbers)
    return f"epoch {where}: {', '.join(parts)}"


def _figure(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.4g}"  # noqa: PLR2004


def _attempts(run: RunRecord, services: Services) -> Iterator[RunRecord]:
    for number in range(1, MAX_ATTEMPTS + 1):
        name = f"{run.logical_run}-a{number}"
        attempt = run if name == run.run_id else services.ledger.run(name)
        if attempt is None and number > run.attempt:
            return
        if attempt is not None:
            yield attempt


def _previous(run: RunRecord, services: Services) -> RunRecord | None:
    """Return the run that registered a model last before a run was planned, among the newest of its dataset."""
    for each in services.ledger.runs(limit=MAX_SEARCHED, dataset=run.dataset_version.dataset):
        is_earlier = each.created_at < run.created_at and each.logical_run != run.logical_run
        if is_earlier and each.pipeline == run.pipeline and each.state is RunState.REGISTERED:
            return each
    return None


def _phases(run: RunRecord, now: datetime) -> Iterator[Phase]:
    """Yield the phases that a run has reached, with their durations."""
    end = run.ended_at or (run.state_since if run.state in SETTLED else None)
    begins = [
        ("In line", run.created_at),
        ("Waiting for nodes", run.submitted_at),
        ("Training", run.started_at),
        ("Decision and notification", run.ended_at),
    ]
    reached = [(name, since) for name, since in begins if since is not None]
    for number, (name, since) in enumerate(reached):
        is_last = number == len(reached) - 1
        until = reached[number + 1][1] if not is_last else (run.notified_at if since == run.ended_at else end)
        duration_s = max(0.0, ((until or now) - since).total_seconds())
        yield Phase(name=name, since=since, until=until, duration_s=duration_s)


def _log(run: RunRecord, rank: int, services: Services) -> tuple[Sequence[str], RankPlace | None, str | None]:
    """Return the last lines of a rank's log, where it runs, and why there are none."""
    kept = (run.log_tail or "").splitlines() if rank == 0 else []
    try:
        part, problem = log_part(run, rank, None, MAX_LOG_BYTES, services)
        place = place_of(run, rank, part, services)
    except ServiceUnavailableError as error:
        return kept, None, f"The log cannot be read now: {error}"
    return (kept if part is None else lines_of(part)), place, problem


def _progress(log: Iterable[str]) -> tuple[dict[int, Epoch], Epoch | None]:
    """Return the epochs that the progress lines of a log report, and the newest line.

    Within an epoch the root writes lines too, with the number of epochs finished: the first one of a number counts.
    """
    ended: dict[int, Epoch] = {}
    newest: Epoch | None = None
    for progress in filter(None, map(parse_progress, log)):
        numbers = finite(asdict(progress))
        if "epoch" in numbers:
            newest = numbers
            ended.setdefault(int(numbers["epoch"]), numbers)
    ended.pop(0, None)
    return ended, newest


def _reported(run: RunRecord, services: Services) -> dict[int, Epoch]:
    """Return the epochs of the training report; none where it is absent or cannot be read."""
    try:
        content = services.run_outputs.read(report_path(spec_from_json(run.spec)), max_bytes=MAX_REPORT_BYTES)
        epochs = () if content is None else TrainingReport.from_json(content).epochs
    except (TrainingReportError, LandfallError):
        return {}
    found = [finite(epoch) for epoch in epochs if isinstance(epoch, Mapping)]
    return {int(epoch["epoch"]): epoch for epoch in found if "epoch" in epoch}
