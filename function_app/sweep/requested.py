"""Sweeps on request: a queue message runs one, and its result can be asked for until the next one is requested.

A sweep may take longer than the 230 seconds after which Azure ends an HTTP request.
"""

from __future__ import annotations

import json
import logging
import uuid
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from pydantic import TypeAdapter

from function_app.domain.errors import InvalidEventError
from function_app.domain.events import MAX_REQUEST_BYTES, SWEEP_REQUESTED
from function_app.services import Services
from function_app.sweep.dead_letters import in_words
from function_app.sweep.sweep import SweepReport, run_sweep
from shared.safe_text import one_line

logger = logging.getLogger(__name__)

MARK = "requested-sweep"
LONGEST = timedelta(minutes=35)
"""Older requests have failed: an execution ends after 30 minutes, ``functionTimeout`` of host.json."""
MAX_PROBLEMS = 20
MAX_PROBLEM_CHARS = 1000
"""Limits of what is kept of the problems: a mark has at most 32,000 characters."""


class SweepState(StrEnum):
    """How far a requested sweep is."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"

    @property
    def has_ended(self) -> bool:
        """Whether it is over."""
        return self in (SweepState.DONE, SweepState.FAILED)


@dataclass(frozen=True, kw_only=True)
class RequestedSweep:
    """The last sweep that was requested. There is one row: the next request replaces it once it has ended."""

    sweep_id: str
    state: SweepState
    requested_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    report: SweepReport | None = None
    """What it found and did, also if parts of it failed."""
    error: str | None = None
    """Why it failed as a whole."""


_ROW = TypeAdapter(RequestedSweep)


def request_sweep(services: Services) -> RequestedSweep:
    """Request a sweep, unless one is queued or running; return it.

    The message of a queued one is sent again: the caller that queued it may have died before it sent the first.
    """
    row = services.ledger.mark(MARK)
    sweep = _current(row, services)
    if sweep is None or sweep.state.has_ended:
        new = RequestedSweep(sweep_id=uuid.uuid4().hex, state=SweepState.QUEUED, requested_at=services.clock())
        is_first = services.ledger.change_mark(MARK, row, _text(new))
        sweep = new if is_first else latest_sweep(services) or new
    if sweep.state is SweepState.QUEUED:
        services.queues[SWEEP_REQUESTED].send_text(json.dumps({"sweep_id": sweep.sweep_id}))
    return sweep


def latest_sweep(services: Services) -> RequestedSweep | None:
    """Return the last sweep that was requested, None before the first."""
    return _current(services.ledger.mark(MARK), services)


def handle_sweep_request(body: bytes, services: Services, *, num_deliveries: int = 1) -> None:
    """Run the sweep that a message asks for, unless it has ended or another handler runs it.

    A message that is delivered again belongs to a handler that died: then its sweep is run again.
    """
    sweep_id, row = _sweep_id(body), services.ledger.mark(MARK)
    sweep = None if row is None else _ROW.validate_json(row)
    is_mine = sweep is not None and sweep.sweep_id == sweep_id and not sweep.state.has_ended
    if sweep is None or not is_mine or (sweep.state is SweepState.RUNNING and num_deliveries == 1):
        logger.info(f"sweep {sweep_id} is running, ended or replaced", extra={"action": "sweep_ignored"})
        return
    running = replace(sweep, state=SweepState.RUNNING, started_at=services.clock())
    if services.ledger.change_mark(MARK, row, _text(running)):
        services.ledger.change_mark(MARK, _text(running), _text(_run(running, services)))


def _run(sweep: RequestedSweep, services: Services) -> RequestedSweep:
    try:
        report = run_sweep(services)
    except Exception as error:  # the caller reads it, and the timer sweeps again
        logger.exception("a requested sweep failed", extra={"action": "sweep_failed"})
        return replace(sweep, state=SweepState.FAILED, ended_at=services.clock(), error=in_words(error))
    state = SweepState.FAILED if report.problems else SweepState.DONE
    return replace(sweep, state=state, ended_at=services.clock(), report=_bounded(report))


def _bounded(report: SweepReport) -> SweepReport:
    kept = [one_line(problem)[:MAX_PROBLEM_CHARS] for problem in report.problems[:MAX_PROBLEMS]]
    more = len(report.problems) - len(kept)
    return replace(report, problems=(*kept, *([f"and {more} more, which the log has"] if more else [])))


def _current(row: str | None, services: Services) -> RequestedSweep | None:
    if row is None:
        return None
    sweep = _ROW.validate_json(row)
    if sweep.state.has_ended or services.clock() - (sweep.started_at or sweep.requested_at) < LONGEST:
        return sweep
    minutes = int(LONGEST.total_seconds() // 60)
    problem = (
        f"it was {sweep.state} and did not end within {minutes} minutes; see the log of function sweep_requested"
    )
    return replace(sweep, state=SweepState.FAILED, error=problem)


def _text(sweep: RequestedSweep) -> str:
    return _ROW.dump_json(sweep).decode()


def _sweep_id(body: bytes) -> str:
    """Read a message. Raises InvalidEventError."""
    try:
        sweep_id = json.loads(body[:MAX_REQUEST_BYTES])["sweep_id"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidEventError(f"sweep request was not sent by Landfall: {error!r}") from error
    return str(sweep_id)[:100]
