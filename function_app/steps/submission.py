"""From a training request to one Azure ML job: claim, act under a deterministic name, record."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from function_app.errors import NotFoundError, SubmissionRefusedError
from function_app.ledger import Generation, RunRecord, RunState
from function_app.pipelines import Pipeline
from function_app.ports import TrainingRequest
from function_app.steps.planning import plan_run, planned_run, spec_from_json
from function_app.steps.run_changes import change_run, move_run
from function_app.steps.run_notification import tell_about_run
from function_app.steps.services import Services

SUBMISSION_LEASE = timedelta(minutes=3)
"""How long a submission is left to whoever began it: longer than all time-outs and repetitions of one take."""
INTERRUPTED = "the submission was interrupted"
"""Reason of a run whose submitter gave up, and said so."""


def handle_request(request: TrainingRequest, services: Services) -> None:
    """Follow one training request to its job. Raises ServiceUnavailableError where it should be delivered again."""
    run = _claimed_run(request, services) if request.run_id is None else services.ledger.run(request.run_id)
    if run is None and request.run_id is not None:
        raise NotFoundError(f"training request names run {request.run_id}, which is not on record")
    if run is not None:
        submit_run(run, services)


def submit_run(run: RunRecord, services: Services) -> RunRecord:
    """Submit a run unless somebody else is at it; one that a dead handler left behind keeps its name."""
    run, is_ours = _claim_submission(run, services)
    if not is_ours:
        services.decide(run.run_id, "request_suppressed", f"the run is {run.state} already")
        return run
    try:
        services.jobs.submit(spec_from_json(run.spec))
    except SubmissionRefusedError as error:
        return _refused(run, str(error), services)
    except Exception:
        _release_submission(run, services)
        raise
    now = services.clock()
    run, moved = move_run(services.ledger, run.run_id, RunState.SUBMITTED, now=now, submitted_at=now, reason=None)
    if moved:
        reason = f"submitted to {run.spec['compute']}: {run.num_nodes} nodes, {run.world_size} processes"
        services.decide(run.run_id, "run_submitted", reason, spec_hash=run.spec_hash)
        services.decide(str(run.dataset_version), "run_submitted", f"run {run.run_id}", trigger=run.trigger)
    return run


def _claim_submission(run: RunRecord, services: Services) -> tuple[RunRecord, bool]:
    """Make this caller the one that submits. Two at once would both be answered, and cost a call for nothing."""
    now = services.clock()
    won = False

    def change(row: RunRecord) -> RunRecord | None:
        nonlocal won
        is_abandoned = row.reason == INTERRUPTED or now - row.state_since >= SUBMISSION_LEASE
        won = row.state is RunState.PLANNED or (row.state is RunState.SUBMITTING and is_abandoned)
        return replace(row, state=RunState.SUBMITTING, state_since=now, reason=None) if won else None

    return change_run(services.ledger, run.run_id, change), won


def _release_submission(run: RunRecord, services: Services) -> None:
    """Let the next delivery try again at once; were the handler killed instead, the lease would run out."""
    change_run(
        services.ledger,
        run.run_id,
        lambda row: replace(row, reason=INTERRUPTED) if row.state is RunState.SUBMITTING else None,
    )


def _claimed_run(request: TrainingRequest, services: Services) -> RunRecord | None:
    """Return the run that a closing starts: this one, or the one that was claimed before. None: nothing to do."""
    version = request.dataset_version
    generation = services.ledger.latest_generation(version)
    if generation is None:
        raise NotFoundError(f"training request for {version}, which has never been whole")
    if generation.number != request.generation:
        reason = f"generation {request.generation} is superseded by {generation.number}"
        services.decide(str(version), "request_suppressed", reason)
        return None
    pipeline = services.pipelines.get(version.dataset)
    if pipeline is None:
        services.decide(str(version), "request_suppressed", f"dataset {version.dataset} has no pipeline any more")
        return None
    return claim_run(pipeline, generation, trigger=request.trigger, services=services)


def claim_run(pipeline: Pipeline, generation: Generation, *, trigger: str, services: Services) -> RunRecord:
    """Name the closing's run, once, and write it down; return the run on record."""
    plan = plan_run(pipeline, generation, services.workspace)
    run_id = services.ledger.claim_auto_run(generation, plan.run_id)
    if run_id != plan.run_id:
        # Claimed before a deployment changed what the plan resolves to. The name stands; its row may be missing
        # where the claimer died in between.
        logical_run = run_id.rpartition("-a")[0]
        plan = plan_run(pipeline, generation, services.workspace, logical_run=logical_run)
    planned = planned_run(plan, pipeline, generation, trigger=trigger, now=services.clock())
    if services.ledger.add_run(planned):
        services.decide(run_id, "run_planned", f"for {generation.dataset_version}, trigger {trigger}")
    run = services.ledger.run(run_id)
    if run is None:
        raise NotFoundError(f"run {run_id} was written and is not on record; the ledger is not whole")
    return run


def _refused(run: RunRecord, problem: str, services: Services) -> RunRecord:
    now = services.clock()
    run, moved = move_run(services.ledger, run.run_id, RunState.FAILED, now=now, ended_at=now, reason=problem)
    if moved:
        services.decide(run.run_id, "submission_refused", problem)
    return tell_about_run(run, services)
