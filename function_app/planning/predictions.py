"""Predictions of runs at submission, their comparison with the results, and the observations for later plans."""

from __future__ import annotations

import hashlib
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from function_app.domain.jobs import runs_own_script
from function_app.domain.records import RunRecord
from function_app.domain.run_states import RunState
from function_app.planning.cost_model import Place
from function_app.planning.estimates import HOUR_S, Estimate
from function_app.planning.throughput import Observation
from shared.training_report import TrainingReport

WRONG = 1 / 3
"""Earlier observations are dropped if a prediction was wrong by more than this share of it."""
MAX_NUMBER = 1e9
ENDED = frozenset({RunState.REGISTERED, RunState.NOT_REGISTERED, RunState.COMPLETED})
_FLAGS = frozenset(
    {
        "--model-name",
        "--model-module",
        "--image-height",
        "--image-width",
        "--augmentation",
    }
)
"""Options that determine the time per record; a plan learns only from runs in which they are the same. The precision
follows the GPU."""


def kind_of(command: str) -> str:
    """Return a digest of the options in a job's command that determine the time per record."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = [command]
    if runs_own_script(command):
        chosen = words[:3]
    else:
        chosen = [word for n, word in enumerate(words) if word in _FLAGS or (n and words[n - 1] in _FLAGS)]
    return hashlib.sha256("\n".join(chosen).encode()).hexdigest()[:12]


def prediction_of(estimate: Estimate, *, records: int, as_of: str | None) -> dict[str, Any]:
    """Return the part of a plan that a run's row keeps, as JSON-ready members."""
    return {
        "vm_size": estimate.vm_size,
        "records": records,
        "start_s": estimate.start_s,
        "run_s": estimate.run_s,
        "run_low_s": estimate.run_low_s,
        "run_high_s": estimate.run_high_s,
        "price": estimate.price,
        "source": estimate.pace.source if estimate.pace else None,
        "num_runs": estimate.pace.num_runs if estimate.pace else 0,
        "as_of": as_of,
    }


def shown_pace(run: RunRecord, report: TrainingReport) -> dict[str, float]:
    """Return a completed run's time per record and the other time of its job; empty if unknown."""
    ran_s = _ran_s(run)
    timed = [
        (float(epoch["duration_s"]), float(epoch["images_per_s"]))
        for epoch in report.epochs
        if isinstance(epoch, Mapping) and _is_rate(epoch.get("duration_s")) and _is_rate(epoch.get("images_per_s"))
    ]
    trained_s, images = sum(s for s, _ in timed), sum(s * rate for s, rate in timed)
    if timed and (images <= 0 or not math.isfinite(trained_s / images)):
        return {}  # a script may report numbers whose product is too small for a float
    if timed:
        found = {"record_s": trained_s / images}
        if ran_s is not None and run.attempt == 1:
            found["job_s"] = max(0.0, ran_s - trained_s)
        return found
    records: Any = run.prediction.get("records")
    if ran_s and _is_rate(records) and run.attempt == 1 and runs_own_script(str(run.spec["command"])):
        return {"record_s": ran_s / float(records), "job_s": 0.0}
    return {}


def _is_rate(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= MAX_NUMBER


def _ran_s(run: RunRecord) -> float | None:
    if run.ended_at is None or run.started_at is None:
        return None
    return (run.ended_at - run.started_at).total_seconds()


@dataclass(frozen=True, kw_only=True)
class Expected:
    """The prediction of a run's job."""

    run_s: float
    low_s: float
    high_s: float
    hourly: float | None
    """Price of all its nodes for an hour; None if there is no price."""
    source: str
    as_of: str | None

    @property
    def cost(self) -> float | None:
        """The cost of the job without node start and idle time, because the ledger can measure only the job."""
        return None if self.hourly is None else self.hourly * self.run_s / HOUR_S


def expected(run: RunRecord) -> Expected | None:
    """Return the prediction of a run; None if there is none."""
    known = run.prediction
    if not all(_is_rate(known.get(name)) for name in ("run_s", "run_low_s", "run_high_s")):
        return None
    return Expected(
        run_s=known["run_s"],
        low_s=known["run_low_s"],
        high_s=known["run_high_s"],
        hourly=known["price"] * run.num_nodes if _is_rate(known.get("price")) else None,
        source=str(known.get("source")),
        as_of=known.get("as_of"),
    )


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A prediction and the measured result."""

    expected: Expected
    measured_s: float

    @property
    def measured_cost(self) -> float | None:
        """Cost of the job at the predicted price."""
        return None if self.expected.hourly is None else self.expected.hourly * self.measured_s / HOUR_S

    @property
    def error(self) -> float:
        """Relative difference from the prediction: 0.5 if the job took 50 % longer."""
        return self.measured_s / self.expected.run_s - 1

    @property
    def is_wrong(self) -> bool:
        """Whether the prediction was wrong by more than a third."""
        return abs(self.error) > WRONG


def outcome_of(run: RunRecord) -> Measured | None:
    """Return the comparison for a run that completed in one attempt; None without a prediction."""
    known, measured_s = expected(run), _ran_s(run)
    if known is None or run.state not in ENDED or run.attempt > 1 or not measured_s:
        return None
    return Measured(expected=known, measured_s=measured_s)


def observations(runs: Sequence[RunRecord], kind: str) -> list[Observation]:
    """Return the observations that runs, newest first, give for one kind of training.

    If a prediction was wrong by more than a third, something has changed: only that run and later ones count.
    """
    found: list[Observation] = []
    for run in runs:
        if kind_of(str(run.spec.get("command", ""))) != kind:
            continue
        found += _observation(run)
        outcome = outcome_of(run)
        if outcome is not None and outcome.is_wrong and found:
            break
    return found


def _observation(run: RunRecord) -> Iterator[Observation]:
    size: Any = run.prediction.get("vm_size")
    record_s: Any = run.pace.get("record_s")
    if not isinstance(size, str) or not _is_rate(record_s) or not run.world_size:
        return
    job_s: Any = run.pace.get("job_s")
    waited = run.started_at - run.submitted_at if run.started_at and run.submitted_at else None
    yield Observation(
        place=Place(vm_size=size, num_nodes=run.num_nodes, num_ranks=run.world_size),
        record_s=record_s,
        job_s=job_s if job_s == 0 or _is_rate(job_s) else None,
        start_s=waited.total_seconds() if waited is not None else None,
    )
