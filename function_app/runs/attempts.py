"""Failed attempts: the remedy, within the pipeline's limits, and the attempt that continues.

The next attempt trains on the same data from the same checkpoints, under the next name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from function_app.config.clusters import Machines
from function_app.config.pipelines import Attempts, Pipeline, processes_under
from function_app.config.prices import PlanFacts
from function_app.domain.errors import LedgerConflictError, SubmissionRefusedError
from function_app.domain.events import TrainingRequest
from function_app.domain.failures import (
    REMEDIES,
    RETRYING,
    Evidence,
    FailureClass,
    Finding,
    Remedy,
    classify,
)
from function_app.domain.jobs import (
    TAG,
    TRACEPARENT_TAG,
    JobSpec,
    JobStatus,
    runs_own_script,
    signed_plan,
    spec_from_json,
    spec_to_json,
    with_expected_machines,
)
from function_app.domain.records import RunRecord
from function_app.domain.run_states import RunState
from function_app.ports import RunLedger
from function_app.runs.admission import submit_again, what_lifts
from function_app.runs.transitions import run_on_record
from function_app.services import History, RunServices
from shared.traces import TRACEPARENT_VARIABLE, place_of_run
from shared.vm_sizes import network_environment

RETRY = "retry"
"""The trigger of a message that starts an attempt."""
MIN_ATTEMPT_S = 60
"""Minimum time that must be left to start an attempt."""
_HOUR_S = 3600.0
_NETWORK_VARIABLES = frozenset(network_environment("Standard_NC6s_v3"))


@dataclass(frozen=True, kw_only=True)
class JobLog:
    """What is known of a job's log."""

    tail: str | None = None
    problem: str = ""
    """Why it could not be read."""


# -- the remedy of a failure, written with the run's end ------------------------------------------------
def failure_members(run: RunRecord, status: JobStatus, log: JobLog, services: RunServices) -> dict[str, Any]:
    """Return the members of the failure and its remedy."""
    finding = classify(_evidence(run, status, log, services))
    return _members(finding, _verdict(run, finding, services))


def refusal_members(run: RunRecord, refusal: SubmissionRefusedError, services: RunServices) -> dict[str, Any]:
    """Return the members for a job that Azure ML refused. Only missing capacity is worth another attempt."""
    finding = classify(Evidence(status="Failed", error_code=refusal.code, error=str(refusal)))
    if finding.failure_class is FailureClass.NO_CAPACITY:
        return _members(finding, _verdict(run, finding, services))
    reason = "Azure ML refused the job, and would refuse it again"
    if finding.failure_class is FailureClass.CONFIGURATION:
        reason = f"the data are not the cause; correct what Azure ML refuses, then: {submit_again(run)}"
    return _members(finding, Verdict(remedy=Remedy.STOP, reason=reason))


def bad_script_members() -> dict[str, Any]:
    """Return the members for a run that is not submitted because its training script has errors."""
    finding = Finding(failure_class=FailureClass.USER_CODE, evidence="the training script has errors")
    reason = "the same script would be refused again; correct and publish it, or submit with --force"
    return _members(finding, Verdict(remedy=Remedy.STOP, reason=reason))


def final_members(
    run: RunRecord, failure_class: FailureClass, problem: str, *, fix: str | None = None
) -> dict[str, Any]:
    """Return the members for a run that ends for a reason other than its data; ``fix`` says what to do."""
    finding = Finding(failure_class=failure_class, evidence=problem, fix=fix or "")
    return _members(finding, Verdict(remedy=Remedy.STOP, reason=_why_final(Remedy.STOP, finding, run)))


def changed_data_members(run: RunRecord, changed: str, services: RunServices) -> dict[str, Any]:
    """Return the members for a run whose shards changed after its submission, whatever its job reports."""
    finding = Finding(failure_class=FailureClass.DATA_CHANGED, evidence=changed)
    superseded = _why_superseded(run, services)
    reason = superseded or _why_final(Remedy.STOP, finding, run)
    return _members(finding, Verdict(remedy=Remedy.STOP, reason=reason))


def _why_final(remedy: Remedy, finding: Finding, run: RunRecord) -> str:
    failure_class = finding.failure_class
    if remedy is Remedy.QUARANTINE:
        return what_lifts(run.dataset_version)
    if finding.fix or failure_class is FailureClass.CONFIGURATION:
        fix = finding.fix or "correct the pipeline's file"
        return f"the data are not the cause; {fix}, then: {submit_again(run)}"
    if failure_class is FailureClass.MISSING_RESOURCES:
        return (
            "the data are not the cause; check the cluster and its image (MPI, NVIDIA's driver, CUDA), then: "
            f"{submit_again(run)}"
        )
    if failure_class is FailureClass.PACKAGES:
        return (
            "the data are not the cause; correct the packages of train.environment and run landfall publish, then: "
            f"{submit_again(run)}"
        )
    if failure_class is FailureClass.DATA_CHANGED:
        return f"to train on the data as they are: {submit_again(run)}"
    return f"{failure_class} is not tried again"


def record_remedy(run: RunRecord, history: History) -> None:
    """Record why a run failed, and the remedy."""
    if run.remedy is not None:
        reason = f"{run.failure_class}: {run.failure_evidence}; {run.remedy}: {run.remedy_reason}"
        history.record(run.run_id, "failure_classified", reason, failure_class=run.failure_class, remedy=run.remedy)


def _members(finding: Finding, verdict: Verdict) -> dict[str, Any]:
    return {
        "failure_class": str(finding.failure_class),
        "failure_evidence": finding.evidence,
        "remedy": str(verdict.remedy),
        "remedy_reason": verdict.reason,
        "next_timeout_s": verdict.timeout_s or None,
        "next_compute": verdict.machines.cluster if verdict.machines else None,
    }


def _evidence(run: RunRecord, status: JobStatus, log: JobLog, services: RunServices) -> Evidence:
    since = run.started_at or run.submitted_at or run.state_since
    return Evidence(
        status=status.status,
        error_code=status.error_code or "",
        error=status.error or "",
        log_tail=log.tail or "",
        log_problem=log.problem,
        ran_s=(services.clock() - since).total_seconds() if status.ran_s is None else status.ran_s,
        timeout_s=float(run.spec["timeout_s"]),
    )


def _verdict(run: RunRecord, finding: Finding, services: RunServices) -> Verdict:
    pipeline = services.pipelines.get(run.dataset_version.dataset)
    if pipeline is None:
        return Verdict(remedy=Remedy.STOP, reason="the dataset no longer has a pipeline")
    if superseded := _why_superseded(run, services):
        return Verdict(remedy=Remedy.STOP, reason=superseded)
    ended = replace(run, ended_at=services.clock())
    return decide_remedy(pipeline, finding, [*attempts_of(run, services.ledger)[:-1], ended])


def _why_superseded(run: RunRecord, services: RunServices) -> str | None:
    latest = services.ledger.latest_generation(run.dataset_version)
    if latest is None or latest.number <= run.generation:
        return None
    return f"its data are superseded by generation {latest.number}"


def attempts_of(run: RunRecord, ledger: RunLedger) -> list[RunRecord]:
    """Return a run after the attempts that it continues."""
    names = (f"{run.logical_run}-a{number}" for number in range(1, run.attempt))
    return [*(found for name in names if (found := ledger.run(name)) is not None), run]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The remedy for a failed attempt, and the reason."""

    remedy: Remedy
    reason: str
    timeout_s: int = 0
    """Time limit of the next attempt: the rest of the budget."""
    machines: Machines | None = None
    """What the next attempt runs on, if that is another cluster."""


def decide_remedy(pipeline: Pipeline, finding: Finding, attempts: Sequence[RunRecord]) -> Verdict:
    """Return what to do about the last of some attempts, all of which have ended."""
    wanted = pipeline.attempts.remedies.get(finding.failure_class, REMEDIES[finding.failure_class])
    remedy, machines = _possible(wanted, finding.failure_class, pipeline, attempts)
    if remedy not in RETRYING:
        return Verdict(remedy=remedy, reason=_why_final(remedy, finding, attempts[-1]))
    if len(attempts) >= pipeline.attempts.max:
        return Verdict(remedy=Remedy.STOP, reason=f"{len(attempts)} of {pipeline.attempts.max} attempts were made")
    timeout_s, bound = _time_left(pipeline, attempts, machines)
    if timeout_s < MIN_ATTEMPT_S:
        return Verdict(remedy=Remedy.STOP, reason=f"nothing is left of {bound}")
    number = len(attempts) + 1
    reason = f"attempt {number} of at most {pipeline.attempts.max}: {remedy}"
    return Verdict(remedy=remedy, reason=reason, timeout_s=timeout_s, machines=machines)


def spent_node_hours(attempts: Sequence[RunRecord]) -> float:
    """Return the node-hours of some attempts, from when they were seen running."""
    return sum(_node_hours(run) for run in attempts)


def spent_cost(pipeline: Pipeline, attempts: Sequence[RunRecord]) -> float:
    """Return the cost of attempts at the pipeline's prices; 0 without a price."""
    return sum(_node_hours(run) * _price(pipeline, str(run.spec["compute"])) for run in attempts)


def known_cost(pipeline: Pipeline | None, attempts: Sequence[RunRecord], facts: PlanFacts) -> float | None:
    """Return the cost of attempts on clusters with a price: 0 before a node starts, None without a price."""
    machines = [(run, pipeline.machines_on(str(run.spec["compute"]))) for run in attempts] if pipeline else []
    prices = [(run, facts.price(known)) for run, known in machines if known is not None]
    costs = [_node_hours(run) * price for run, price in prices if price is not None]
    return sum(costs) if costs else None


def _possible(
    wanted: Remedy, failure_class: FailureClass, pipeline: Pipeline, attempts: Sequence[RunRecord]
) -> tuple[Remedy, Machines | None]:
    """Fall back to the next best remedy: a batch of one cannot be halved, and the list of clusters ends."""
    if wanted is Remedy.SMALLER_BATCH and (per_process_batch_size(str(attempts[-1].spec["command"])) or 1) <= 1:
        wanted = Remedy.OTHER_SIZE
    if wanted is not Remedy.OTHER_SIZE:
        return wanted, None
    tried = {run.spec["compute"] for run in attempts}
    untried = next((name for name in pipeline.attempts.other_clusters if name not in tried), None)
    if untried is not None:
        return Remedy.OTHER_SIZE, pipeline.machines_on(untried)
    return (Remedy.WAIT if failure_class is FailureClass.NO_CAPACITY else Remedy.STOP), None


def _time_left(pipeline: Pipeline, attempts: Sequence[RunRecord], machines: Machines | None) -> tuple[int, str]:
    """Return the next attempt's time limit in seconds, and which bound of the pipeline sets it."""
    limits: Attempts = pipeline.attempts
    last = attempts[-1]
    left = [(float(pipeline.train.timeout_s), "train.timeout_s")]
    if last.sweep_id is not None:  # the limit of the sweep counts each run with its first time limit
        hours = float(attempts[0].spec["timeout_s"]) * last.num_nodes / _HOUR_S - spent_node_hours(attempts)
        left.append((hours / last.num_nodes * _HOUR_S, "the run's share of its option sweep's limit"))
    if limits.max_node_hours is not None:
        hours = limits.max_node_hours - spent_node_hours(attempts)
        left.append((hours / last.num_nodes * _HOUR_S, "attempts.max_node_hours"))
    price = _price(pipeline, machines.cluster if machines else str(last.spec["compute"]))
    if limits.max_cost is not None and price:
        money = limits.max_cost - spent_cost(pipeline, attempts)
        left.append((money / price / last.num_nodes * _HOUR_S, "attempts.max_cost"))
    seconds, bound = min(left)
    return int(seconds), bound


def _node_hours(run: RunRecord) -> float:
    since = run.started_at or run.submitted_at
    if since is None or run.ended_at is None:
        return 0.0
    return run.num_nodes * max(0.0, (run.ended_at - since).total_seconds()) / _HOUR_S


def _price(pipeline: Pipeline, compute: str) -> float:
    machines = pipeline.machines_on(compute)
    return (machines.price_per_node_hour if machines else None) or 0.0


# -- the attempt that continues a run ------------------------------------------------------------------------
def start_attempt(run: RunRecord, services: RunServices) -> RunRecord:
    """Add the attempt that continues a run and request its submission; return the run as it then stands."""
    following = _following(run, services)
    try:
        run, following = services.ledger.add_attempt(replace(run, next_run_id=following.run_id), following)
    except LedgerConflictError:
        return run_on_record(services.ledger, run.run_id)  # another handler was first, or a person has canceled
    reason = f"{run.failure_class} ({run.failure_evidence}): {run.remedy_reason}"
    services.history.record(run.run_id, "attempt_planned", f"{reason} as {following.run_id}")
    services.history.record(following.run_id, "run_planned", f"continues {run.run_id}, which ended as {reason}")
    services.history.record(
        str(run.dataset_version), "attempt_planned", f"run {following.run_id} continues {run.run_id}"
    )
    if following.not_before is None:
        services.requests.send(_request(following))
    return run


def _following(run: RunRecord, services: RunServices) -> RunRecord:
    """Return the next attempt's row, derived from the submitted spec, not from the current deployment."""
    attempt = run.attempt + 1
    plan = signed_plan(run.logical_run, attempt, _next_spec(run, attempt, services))
    now = services.clock()
    pipeline = services.pipelines.get(run.dataset_version.dataset)
    waits = run.remedy == Remedy.WAIT and pipeline is not None
    return RunRecord(
        run_id=plan.run_id,
        logical_run=run.logical_run,
        attempt=attempt,
        dataset_version=run.dataset_version,
        generation=run.generation,
        fingerprint=run.fingerprint,
        pipeline=run.pipeline,
        trigger=run.trigger,
        spec=spec_to_json(plan.spec),
        spec_hash=plan.spec_hash,
        created_at=now,
        asked_at=run.asked_at,
        state_since=now,
        state=RunState.PLANNED,
        forced_by=run.forced_by,
        sweep_id=run.sweep_id,
        sweep_number=run.sweep_number,
        data_etags=run.data_etags,
        num_nodes=plan.spec.num_nodes,
        world_size=plan.spec.num_nodes * plan.spec.processes_per_node,
        not_before=now + timedelta(seconds=pipeline.attempts.wait_s) if waits and pipeline else None,
    )


def _next_spec(run: RunRecord, attempt: int, services: RunServices) -> JobSpec:
    spec, name = spec_from_json(run.spec), f"{run.logical_run}-a{attempt}"
    traceparent = place_of_run(run.dataset_version, name).traceparent
    outputs = {
        key: {
            **output,
            "uri": output["uri"].replace(f"/{run.logical_run}/a{run.attempt}/", f"/{run.logical_run}/a{attempt}/"),
        }
        for key, output in spec.outputs.items()
    }
    spec = replace(
        spec,
        name=name,
        display_name=spec.display_name.replace(f"attempt {run.attempt})", f"attempt {attempt})"),
        outputs=outputs,
        timeout_s=run.next_timeout_s or spec.timeout_s,
        environment_variables={**spec.environment_variables, TRACEPARENT_VARIABLE: traceparent},
        tags={**spec.tags, TAG + "run_id": name, TRACEPARENT_TAG: traceparent},
    )
    if run.remedy == Remedy.SMALLER_BATCH:
        spec = replace(spec, command=with_smaller_batch(spec.command))
    pipeline = services.pipelines.get(run.dataset_version.dataset)
    return _on_other_cluster(spec, run.next_compute, pipeline) if run.next_compute and pipeline else spec


def _on_other_cluster(spec: JobSpec, compute: str, pipeline: Pipeline) -> JobSpec:
    """Return the job for another cluster; its options stay, since it continues from checkpoints made with them."""
    machines = pipeline.machines_on(compute)
    if machines is None:
        return spec  # a deployment removed it from the list
    kept = {k: v for k, v in spec.environment_variables.items() if k not in _NETWORK_VARIABLES}
    chosen = pipeline.train.environment_variables | {
        TRACEPARENT_VARIABLE: spec.environment_variables[TRACEPARENT_VARIABLE]
    }
    environment = {**kept, **network_environment(machines.vm_size), **chosen}
    processes = processes_under(spec.distribution, machines)
    return replace(
        spec,
        command=with_expected_machines(spec.command, world_size=spec.num_nodes * processes, vm_size=machines.vm_size),
        compute=compute,
        processes_per_node=processes,
        environment_variables=environment,
    )


def _request(run: RunRecord) -> TrainingRequest:
    return TrainingRequest(
        dataset_version=run.dataset_version, generation=run.generation, trigger=RETRY, run_id=run.run_id
    )


_BATCH = re.compile(r"(?<=--per-process-batch-size )(\d+)")
_ACCUMULATION = re.compile(r"(?<=--gradient-accumulation )(\d+)")


def per_process_batch_size(command: str) -> int | None:
    """Return the batch size of Landfall's training; None for a user's script, whose flags are its own."""
    found = None if runs_own_script(command) else _BATCH.search(command)
    return int(found[1]) if found else None


def with_smaller_batch(command: str) -> str:
    """Return a command with half the batch and twice the batches for each step.

    If the batch size is even, the global batch size stays the same, so training continues from the checkpoint
    unchanged.
    """
    halved = _BATCH.sub(lambda found: str(max(1, int(found[1]) // 2)), command, count=1)
    return _ACCUMULATION.sub(lambda found: str(int(found[1]) * 2), halved, count=1)
