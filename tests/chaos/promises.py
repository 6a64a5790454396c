"""The promises that a chaos run checks, judged by the evidence that it left."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable

from function_app.domain.run_states import RunState
from tests.chaos.evidence import DEAD_LETTER, Evidence
from tests.chaos.plan import ChaosPlan
from tests.chaos.report import Finding
from tests.chaos.storm import Damage

RECIPIENTS = 2


def judge(plan: ChaosPlan, damage: Damage, evidence: Evidence) -> list[Finding]:
    """Return every promise with what was seen, then the findings that describe the storm."""
    return [*promises(plan, evidence), *description(damage, evidence)]


def promises(plan: ChaosPlan, evidence: Evidence) -> list[Finding]:
    """Return the findings that must be exactly as promised."""
    n, ids = plan.versions, {run.run_id for run in evidence.runs}
    registered = [run for run in evidence.runs if run.state is RunState.REGISTERED]
    silent = sum(not entry.reason for entry in evidence.suppressed)
    expected = {(run.run_id, run.state) for run in evidence.runs}
    ends = Counter({key: count for key, count in evidence.notified.items() if key[2] != DEAD_LETTER})
    notified = {(run_id, outcome) for run_id, _, outcome in ends}
    return [
        exactly("shards accepted", evidence.accepted, n * plan.shards),
        exactly("versions closed", len(evidence.generations), n),
        exactly("versions closed more than once", sum(g > 1 for g in evidence.generations.values()), 0),
        exactly("runs", len(evidence.runs), n),
        exactly("runs that registered a model", len(registered), n),
        exactly("jobs in Azure ML", len(evidence.jobs), n),
        exactly("jobs that the ledger does not know", len(set(evidence.jobs) - ids), 0),
        exactly("model versions", evidence.models.total(), n),
        exactly("models of unknown runs", len(set(evidence.models) - ids), 0),
        exactly("distinct notifications of ends", ends.total(), n * RECIPIENTS),
        exactly("ends per recipient", len(ends), n * RECIPIENTS),
        exactly("notified outcomes that are not the run's", len(notified - expected), 0),
        exactly("events suppressed without a reason", silent, 0),
    ]


def description(damage: Damage, evidence: Evidence) -> list[Finding]:
    """Return how strong the storm was and how long the recovery took."""
    facts = {
        **{f"events {what}": count for what, count in sorted(evidence.events.items())},
        "duplicates suppressed with a reason": len(evidence.suppressed),
        "notifications received, including repetitions": evidence.deliveries,
        "dead letters": evidence.dead_letters,
        "calls of Azure ML that failed": evidence.failed_calls.total(),
        "storage requests that failed": damage.storage_faults,
        "crashes survived": len(damage.restarts_s),
    }
    return [
        *(Finding(name=name, value=float(count)) for name, count in facts.items()),
        Finding(name="time until a killed host answers, median", value=median_or_0(damage.restarts_s), unit="s"),
        Finding(name="length of the storm", value=damage.storm_s, unit="s"),
        Finding(name="time from its end to the last notification", value=damage.recovery_s, unit="s"),
    ]


def exactly(name: str, value: int, promised: int) -> Finding:
    """Return a finding that holds at one value only."""
    return Finding(name=name, value=float(value), promised=float(promised))


def median_or_0(samples: Iterable[float]) -> float:
    """Return the median, or 0 without samples: a short storm may end before the first kill."""
    return statistics.median([*samples] or [0.0])
