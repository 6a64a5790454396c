"""Following a run to its end: whatever woke us up, what counts is what Azure ML says now."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from function_app.domain.errors import InvalidEventError, SubmissionRefusedError
from function_app.domain.failures import Remedy
from function_app.domain.job_plan import PREFIX
from function_app.domain.jobs import JobStatus
from function_app.domain.records import RunRecord
from function_app.domain.run_states import SETTLED, Actor, RunState
from function_app.notify.messages import tell_about_run
from function_app.runs.admission import awaits_attempt, release
from function_app.runs.attempts import judged, start_attempt, tell_verdict
from function_app.runs.holds import quarantine
from function_app.runs.registration import settle_completed
from function_app.runs.transitions import move_run
from function_app.services import Services
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
        services.history.record(run.run_id, f"run_{run.state}", run.reason or f"Azure ML says: {target}", by=by)
        tell_verdict(run, services)
    return run


def end_run(run: RunRecord, services: Services, *, by: Actor) -> RunRecord:
    """Do what follows from a run's end; doing it again changes nothing. A run that has not ended stays as it is."""
    if run.state not in SETTLED or run.next_run_id is not None:
        return run
    if awaits_attempt(run):
        run = start_attempt(run, services)
        if run.next_run_id is not None:
            return run
    if run.remedy == Remedy.QUARANTINE and run.notified_at is None:
        quarantine(run, services)
    if run.state is RunState.LOST and run.notified_at is None:
        ask_cancel(run, services)  # what we have given up must not train after all, and nobody know of it
    release(run, services, by=by)
    return tell_about_run(run, services)


MAX_RUN_ID_CHARS = 300
OTHERS_EVENTS = "run_events_of_other_projects"
"""The counter of what is not ours, by day: one row a day, however busy the workspace is."""

_SUBJECT = re.compile(r"(?:.*/)?runs/(?P<run_id>[^/]{1,300})")


def handle_run_event(run_id: str, services: Services) -> None:
    """Reconcile the run if it is on record; what an event did not change is told too."""
    if not run_id.startswith(PREFIX):
        services.ledger.count(OTHERS_EVENTS, f"{services.clock():%Y-%m-%d}")
        logger.info(f"run {run_id[:100]} is of another project", extra={"action": "foreign_run_event"})
        return
    before = services.ledger.run(run_id)
    run = reconcile_run(run_id, services)
    if run is None:
        services.history.record(run_id[:255], "event_suppressed", "the event names a run that is not on record")
    elif before is not None and before.state is run.state and before.notified_at == run.notified_at:
        services.history.record(
            run_id, "event_suppressed", f"the event brings nothing new: the run is {run.state} already"
        )


def read_run_id(subject: str | None, data: object) -> str:
    """Return the run's id. Raises InvalidEventError.

    All other fields may be null, or beside ``data`` instead of in it, so none is read.
    """
    stated = data.get("runId") if isinstance(data, dict) else None
    if isinstance(stated, str) and 0 < len(stated) <= MAX_RUN_ID_CHARS:
        return stated
    match = _SUBJECT.fullmatch(subject or "")
    if match is None:
        raise InvalidEventError(
            f"run event should name its run in data.runId or the subject, was {str(subject)[:200]!r}"
        )
    return match["run_id"]


MAX_WORDS_CHARS = 300
_LOG_FOLLOWS = " Error: "
"""Azure ML appends the end of a log to its message; the log is kept beside the reason, whole."""


def brief_reason(error: str | None, log_tail: str | None) -> str:
    """Return one bounded line of text; what it leaves out is in the run's ``log_tail``."""
    words = " ".join((error or "Azure ML says that the job failed, and not why").split())
    if len(words) > MAX_WORDS_CHARS:
        words = _cut(words.partition(_LOG_FOLLOWS)[0])
    last = _last_line(log_tail)
    return f"{words} The log ends with: {last}" if last and last not in words else words


def _last_line(log_tail: str | None) -> str:
    lines = [line.strip() for line in (log_tail or "").splitlines() if line.strip()]
    return _cut(lines[-1]) if lines else ""


def _cut(text: str) -> str:
    return text if len(text) <= MAX_WORDS_CHARS else text[: MAX_WORDS_CHARS - 1].rstrip() + "…"


def ask_cancel(run: RunRecord, services: Services) -> None:
    """Ask once more; a job that has ended or is unknown stays as it is, and the next look will tell.

    Raises ServiceUnavailableError: whoever looks at the run next asks again.
    """
    try:
        services.jobs.cancel(run.run_id)
    except SubmissionRefusedError as error:
        logger.warning(f"run {run.run_id}: {error}", extra={"action": "cancel_refused", "run_id": run.run_id})
