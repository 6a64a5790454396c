"""Runs side by side: their data, the options that differ, their metrics, time and cost."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from function_app.domain.option_sweeps import ENDED
from function_app.domain.records import RunRecord
from function_app.registry.gate import GateError, read_report
from function_app.runs.attempts import attempts_of, known_cost, spent_node_hours
from function_app.services import RunServices

MAX_METRICS = 20
MAX_VALUE_CHARS = 200
MAX_NUMBER = 1e100
"""Larger numbers, infinity and NaN are left out."""


@dataclass(frozen=True, kw_only=True)
class ComparedRun:
    """One run beside others: its last attempt, with the time and cost of all of them."""

    run: RunRecord
    options: Mapping[str, str]
    """Those that differ among the runs, as far as this one has them."""
    metrics: Mapping[str, float]
    images_per_s: float | None
    epochs: tuple[Mapping[str, float], ...]
    """From the training report, which a run has at its end."""
    trained_s: float
    """From when the nodes were there, in all attempts so far."""
    node_hours: float
    cost: float | None
    """In the currency of prices.yaml; None where no file has a price for its clusters."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Runs side by side, in the order in which they were named."""

    runs: tuple[ComparedRun, ...]
    options: tuple[str, ...]
    """The names of the options that differ."""
    metrics: tuple[str, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """Which metrics have no interval, and why, in words."""
        ended = [row for row in self.runs if row.run.state in ENDED]
        known = [row for row in ended if row.run.evidence.get("intervals")]
        bare = [row.run.run_id for row in ended if row.metrics and row not in known]
        without = dict.fromkeys(
            name[:MAX_VALUE_CHARS]
            for row in known
            for name in row.metrics
            if name in self.metrics and name not in row.run.evidence["intervals"]
        )
        notes = []
        if without:
            notes.append(
                f"Without an interval: {', '.join(without)}. Only averages over validation examples, and the area "
                "under the curve, can have one."
            )
        if bare:
            notes.append(
                f"No metric of {', '.join(bare)} has an interval: there are no results of each validation example "
                "that make up what its report states."
            )
        return tuple(notes)


def compared(runs: Sequence[RunRecord], services: RunServices) -> Comparison:
    """Compare runs as they were read."""
    options = [_options(run) for run in runs]
    names = tuple(dict.fromkeys(name for each in options for name in each))
    differing = tuple(name for name in names if len({each.get(name) for each in options}) > 1)
    rows = tuple(
        _row(run, {name: own[name] for name in differing if name in own}, services)
        for run, own in zip(runs, options, strict=True)
    )
    metrics = tuple(dict.fromkeys(name for row in rows for name in sorted(row.metrics)))
    return Comparison(runs=rows, options=differing, metrics=metrics[:MAX_METRICS])


def _row(run: RunRecord, options: Mapping[str, str], services: RunServices) -> ComparedRun:
    now, pipeline = services.clock(), services.pipelines.get(run.dataset_version.dataset)
    spent = [as_if_ended(each, now) for each in attempts_of(run, services.ledger)]
    metrics, images_per_s, epochs = _reported(run, services)
    hours = spent_node_hours(spent)
    return ComparedRun(
        run=run,
        options=options,
        metrics=metrics,
        images_per_s=images_per_s,
        epochs=epochs,
        trained_s=hours / max(1, run.num_nodes) * 3600,
        node_hours=hours,
        cost=known_cost(pipeline, spent, services.plan_facts),
    )


def as_if_ended(run: RunRecord, now: datetime) -> RunRecord:
    """Return a run whose nodes are paid until now; one that waits for nodes costs nothing."""
    return replace(run, ended_at=now) if run.ended_at is None and run.started_at is not None else run


def _reported(
    run: RunRecord, services: RunServices
) -> tuple[Mapping[str, float], float | None, tuple[Mapping[str, float], ...]]:
    """Return metrics, throughput and epochs of the training report; without one what the row has."""
    if run.state not in ENDED:
        return run.metrics, None, ()
    try:
        report = read_report(run, services.run_outputs, services.jobs)
    except GateError:
        return run.metrics, None, ()
    epochs = tuple(finite(epoch) for epoch in report.epochs if isinstance(epoch, Mapping))
    rate = finite({"rate": report.images_per_s}).get("rate")
    return finite(report.metrics), rate, tuple(epoch for epoch in epochs if "epoch" in epoch)


def finite(members: Mapping[str, object]) -> dict[str, float]:
    """Return the members that are finite numbers: a script may write anything."""
    found: dict[str, float] = {}
    for name, value in members.items():
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_NUMBER:
            found[name] = float(value)
    return found


# -- options --------------------------------------------------------------------------------------------------
_NOT_OPTIONS = frozenset({"expected_world_size", "expected_nodes", "expected_device", "pass_paths"})
"""What a command states beside options: machines are compared by themselves."""


def _options(run: RunRecord) -> dict[str, str]:
    """Return what a run was trained with, as its job states it."""
    spec = run.spec
    code, environment = str(spec.get("code_id", "")), str(spec.get("environment_id", ""))
    own = {
        "data": f"{run.dataset_version}, generation {run.generation}",
        **dict(_of_command(str(spec.get("command", "")))),
        "cluster": str(spec.get("compute", "")),
        "nodes": str(run.num_nodes),
        "processes": str(run.world_size or ""),
        "timeout_s": str(spec.get("timeout_s", "")),
        "code": code.rpartition("/codes/")[2],
        "environment": environment.rpartition("/environments/")[2],
    }
    return {name: value[:MAX_VALUE_CHARS] for name, value in own.items()}


def _of_command(command: str) -> Iterator[tuple[str, str]]:
    """Yield the options of a command, but not its paths."""
    try:
        words = shlex.split(command)
    except ValueError:
        return
    for number, word in enumerate(words):
        if not word.startswith("--"):
            continue
        flag, separator, value = word[2:].partition("=")
        if not separator:
            following = words[number + 1] if number + 1 < len(words) else "--"
            value = "true" if following.startswith("--") else following
        name = flag.replace("-", "_")
        if name not in _NOT_OPTIONS and "${{" not in value:
            yield name, value


def member(row: ComparedRun) -> dict[str, Any]:
    """Return a compared run for programs."""
    return {
        "run_id": row.run.run_id,
        "options": dict(row.options),
        "outcome": str(row.run.state),
        "metrics": dict(row.metrics),
        "trained_s": round(row.trained_s, 1),
        "node_hours": round(row.node_hours, 4),
        "cost": row.cost,
        "reason": row.run.reason,
    }
