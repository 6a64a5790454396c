"""What is done about a failed attempt, within what the pipeline allows: pure decisions on rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from function_app.failure_classes import REMEDIES, RETRYING, FailureClass, Finding, Remedy
from function_app.ledger import RunRecord
from function_app.pipelines import Attempts, Pipeline, Size
from function_app.steps.smaller_batch import per_process_batch_size

MIN_ATTEMPT_S = 60
"""An attempt with less time left than this is not worth starting."""
_HOUR_S = 3600.0


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What was decided about a failed attempt."""

    remedy: Remedy
    reason: str
    timeout_s: int = 0
    """Of the next attempt: what the budget leaves."""
    size: Size | None = None
    """Of the next attempt, where it is another one."""


def decide_remedy(pipeline: Pipeline, finding: Finding, attempts: Sequence[RunRecord]) -> Verdict:
    """Return what to do about the last of some attempts, all of which have ended."""
    wanted = pipeline.attempts.remedies.get(finding.failure_class, REMEDIES[finding.failure_class])
    remedy, size = _possible(wanted, finding.failure_class, pipeline, attempts)
    if remedy not in RETRYING:
        return Verdict(remedy=remedy, reason=f"{finding.failure_class} is not tried again")
    if len(attempts) >= pipeline.attempts.max:
        return Verdict(remedy=Remedy.STOP, reason=f"{len(attempts)} of {pipeline.attempts.max} attempts are made")
    timeout_s, bound = _time_left(pipeline, attempts, size)
    if timeout_s < MIN_ATTEMPT_S:
        return Verdict(remedy=Remedy.STOP, reason=f"nothing is left of attempts.{bound}")
    number = len(attempts) + 1
    reason = f"attempt {number} of at most {pipeline.attempts.max}: {remedy}"
    return Verdict(remedy=remedy, reason=reason, timeout_s=timeout_s, size=size)


def spent_node_hours(attempts: Sequence[RunRecord]) -> float:
    """Return the node-hours of some attempts, from when they were seen running."""
    return sum(_node_hours(run) for run in attempts)


def spent_cost(pipeline: Pipeline, attempts: Sequence[RunRecord]) -> float:
    """Return what some attempts cost at the pipeline's prices; without a price it is nothing."""
    return sum(_node_hours(run) * _price(pipeline, str(run.spec["compute"])) for run in attempts)


def _possible(
    wanted: Remedy, failure_class: FailureClass, pipeline: Pipeline, attempts: Sequence[RunRecord]
) -> tuple[Remedy, Size | None]:
    """Give way to the next best: a batch of one cannot be halved, and a list of sizes ends."""
    if wanted is Remedy.SMALLER_BATCH and (per_process_batch_size(str(attempts[-1].spec["command"])) or 1) <= 1:
        wanted = Remedy.OTHER_SIZE
    if wanted is not Remedy.OTHER_SIZE:
        return wanted, None
    tried = {run.spec["compute"] for run in attempts}
    size = next((size for size in pipeline.attempts.other_sizes if size.compute not in tried), None)
    if size is not None:
        return Remedy.OTHER_SIZE, size
    return (Remedy.WAIT if failure_class is FailureClass.NO_CAPACITY else Remedy.STOP), None


def _time_left(pipeline: Pipeline, attempts: Sequence[RunRecord], size: Size | None) -> tuple[int, str]:
    """Return the next attempt's time limit in seconds, and which bound of the pipeline sets it."""
    limits: Attempts = pipeline.attempts
    last = attempts[-1]
    left = [(float(pipeline.train.timeout_s), "timeout_s")]
    if limits.max_node_hours is not None:
        hours = limits.max_node_hours - spent_node_hours(attempts)
        left.append((hours / last.num_nodes * _HOUR_S, "max_node_hours"))
    price = _price(pipeline, size.compute if size else str(last.spec["compute"]))
    if limits.max_cost is not None and price:
        money = limits.max_cost - spent_cost(pipeline, attempts)
        left.append((money / price / last.num_nodes * _HOUR_S, "max_cost"))
    seconds, bound = min(left)
    return int(seconds), bound


def _node_hours(run: RunRecord) -> float:
    since = run.started_at or run.submitted_at
    if since is None or run.ended_at is None:
        return 0.0
    return run.num_nodes * max(0.0, (run.ended_at - since).total_seconds()) / _HOUR_S


def _price(pipeline: Pipeline, compute: str) -> float:
    sizes = {size.compute: size.price_per_node_hour for size in pipeline.attempts.other_sizes}
    sizes[pipeline.train.compute] = pipeline.train.price_per_node_hour
    return sizes.get(compute) or 0.0
