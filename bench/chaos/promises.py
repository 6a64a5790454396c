"""What was promised, and what the evidence says."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from bench.chaos.evidence import Evidence
from bench.chaos.plan import ChaosPlan
from bench.chaos.storm import Damage
from bench.figures import Figure
from function_app.domain.run_states import RunState

RECIPIENTS = 2


def figures(plan: ChaosPlan, damage: Damage, evidence: Evidence) -> list[Figure]:
    """Every promise with its bound, then what describes the storm."""
    return [*promises(plan, evidence), *described(damage, evidence)]


def promises(plan: ChaosPlan, evidence: Evidence) -> list[Figure]:
    """Return the figures that must be exactly as promised."""
    n, ids = plan.versions, {run.run_id for run in evidence.runs}
    registered = [run for run in evidence.runs if run.state is RunState.REGISTERED]
    silent = sum(not line.reason for line in evidence.suppressed)
    expected = {(run.run_id, run.state) for run in evidence.runs}
    told = {(run_id, outcome) for run_id, _, outcome in evidence.told}
    return [
        exactly("shards accepted", evidence.accepted, n * plan.shards),
        exactly("versions closed", len(evidence.generations), n),
        exactly("closings more than one of a version", sum(g > 1 for g in evidence.generations.values()), 0),
        exactly("runs", len(evidence.runs), n),
        exactly("runs that registered a model", len(registered), n),
        exactly("jobs in Azure ML", len(evidence.jobs), n),
        exactly("jobs that the ledger does not know", len(set(evidence.jobs) - ids), 0),
        exactly("model versions", evidence.models.total(), n),
        exactly("models of no run", len(set(evidence.models) - ids), 0),
        exactly("notifications, one for each outcome and recipient", evidence.told.total(), n * RECIPIENTS),
        exactly("outcomes, recipient by recipient", len(evidence.told), n * RECIPIENTS),
        exactly("outcomes told that were none", len(told - expected), 0),
        exactly("suppressed without a reason", silent, 0),
    ]


def described(damage: Damage, evidence: Evidence) -> list[Figure]:
    """Return what the storm was like, and what getting over it took."""
    facts = {
        **{f"events {what}": count for what, count in sorted(evidence.events.items())},
        "duplicates suppressed with a reason": len(evidence.suppressed),
        "notifications received, repetitions too": evidence.deliveries,
        "dead letters": evidence.dead_letters,
        "calls of Azure ML that went wrong": evidence.bad_answers.total(),
        "requests of storage that went wrong": damage.storage_faults,
        "crashes survived": len(damage.restarts_s),
    }
    return [
        *(Figure(name=name, value=float(count), unit="") for name, count in facts.items()),
        Figure(name="time until a killed host answers, median", value=middle(damage.restarts_s), unit="s"),
        Figure(name="length of the storm", value=damage.storm_s, unit="s"),
        Figure(name="time from its end to everything told", value=damage.recovery_s, unit="s"),
    ]


def exactly(name: str, value: int, promised: int) -> Figure:
    """Return a figure that holds at one value only."""
    return Figure(name=name, value=float(value), unit="", at_least=float(promised), at_most=float(promised))


def middle(samples: Iterable[float]) -> float:
    """Return the median, 0 where nothing was measured: a short storm may kill nobody."""
    return statistics.median([*samples] or [0.0])
