"""Following a run to its end: whatever woke us up, what counts is what Azure ML says now."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from function_app.ledger import RunRecord, RunState
from function_app.ports import JobStatus
from function_app.run_states import Actor
from function_app.steps.attempts import judged, tell_verdict
from function_app.steps.cancel_requests import ask_cancel
from function_app.steps.failure_words import brief_reason
from function_app.steps.registration import settle_completed
from function_app.steps.run_changes import move_run
from function_app.steps.run_ends import end_run
from function_app.steps.services import Services
from shared.errors import LandfallError

logger = logging.getLogger(__name__)

LOST_AFTER = timedelta(minutes=15)
"""A job is known right after its PUT was answered; this allows for a regional failover of the service's index."""
MAX_LOG_TAIL_BYTES = 16 << 10

FOLLOWED = frozenset({RunState.SUBMITTED, RunState.QUEUED, RunState.RUNNING})
"""States in which Azure ML decides what comes next."""

CANCELABLE = frozenset({None, RunState.QUEUED, RunState.RUNNING})
"""What a job's word means while it has not ended; None for words that say nothing."""

STATES: Mapping[str, RunState] = {
    "Provisioning": RunState.QUEUED,
    "Preparing": RunState.QUEUED,
    "Queued": RunState.QUEUED,
    "Running": RunState.RUNNING,
    "Finalizing": RunState.RUNNING,
    "Completed": RunState.COMPLETED,
    "Failed": RunState.FAILED,
    "Canceled": RunState.CANCELED,
}
"""What Azure ML's words mean. All others (NotStarted, Starting, CancelRequested, NotResponding, Paused, Unknown, and
those still to be invented) change nothing: the next look will tell."""


def reconcile_run(run_id: str, services: Services, *, by: Actor = Actor.RECONCILIATION) -> RunRecord | None:
    """Bring a run up to date with Azure ML, and settle it where it has ended. None where it is not ours."""
    run = services.ledger.run(run_id)
    if run is None:
        return None
    if run.state in FOLLOWED:
        run = _look(run, services, by)
    if run.state is RunState.COMPLETED:
        run = settle_completed(run, services, by=by)
    return end_run(run, services, by=by)


def _look(run: RunRecord, services: Services, by: Actor) -> RunRecord:
    status = services.jobs.status(run.run_id)
    if status is None:
        return _unknown_job(run, services, by)
    target = STATES.get(status.status)
    if run.cancel_requested_at is not None and target in CANCELABLE:
        ask_cancel(run, services)  # whoever asked first may have died before the call, or its answer was lost
    if target is None or target is run.state:
        return run
    return _moved(run, target, _evidence(run, target, status, services), services, by)


def _unknown_job(run: RunRecord, services: Services, by: Actor) -> RunRecord:
    now = services.clock()
    since = run.submitted_at or run.state_since
    if now - since < LOST_AFTER:
        return run
    reason = (
        f"Azure ML does not know the job that was submitted at {since.isoformat(timespec='seconds')}: what "
        f"became of it cannot be said. To train again: landfall submit {run.dataset_version} --force"
    )
    return _moved(run, RunState.LOST, {"ended_at": now, "reason": reason}, services, by)


def _evidence(run: RunRecord, target: RunState, status: JobStatus, services: Services) -> dict[str, Any]:
    """Return what is worth keeping of how a job ended."""
    now = services.clock()
    if target is RunState.FAILED:
        log_tail = _log_tail(status.name, services)
        reason = brief_reason(status.error, log_tail)
        found = judged(run, status, log_tail, services)
        return {"ended_at": now, "reason": reason, "log_tail": log_tail, **found}
    if target is RunState.CANCELED:
        unasked = status.error or "canceled in Azure ML, by a person or by the job's time limit"
        found = {} if run.cancel_requested_at else judged(run, status, None, services)
        return {"ended_at": now, "reason": run.cancel_reason or unasked, **found}
    if target is RunState.RUNNING:
        return {"started_at": now}
    return {"ended_at": now} if target is RunState.COMPLETED else {}


def _log_tail(run_id: str, services: Services) -> str | None:
    """Return the end of the log; a run has ended whether its log can be had or not."""
    try:
        return services.jobs.log_tail(run_id, max_bytes=MAX_LOG_TAIL_BYTES)
    except LandfallError as error:
        logger.warning(f"run {run_id}: its log could not be read: {error}", extra={"run_id": run_id})
        return None


def _moved(run: RunRecord, target: RunState, evidence: Mapping[str, Any], services: Services, by: Actor) -> RunRecord:
    run, moved = move_run(services.ledger, run.run_id, target, by=by, now=services.clock(), **evidence)
    if moved:
        services.decide(run.run_id, f"run_{run.state}", run.reason or f"Azure ML says: {target}", by=by)
        tell_verdict(run, services)
    return run
