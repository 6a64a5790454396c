"""Change a run's row: decide on the row as read, write it under its revision, and read it again on a conflict."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

from function_app.domain.errors import LedgerConflictError, NotFoundError
from function_app.domain.records import RunRecord
from function_app.domain.run_states import Actor, RunState, is_legal
from function_app.ports import RunLedger

logger = logging.getLogger(__name__)

MAX_TRIES = 8


def move_run(
    ledger: RunLedger, run: RunRecord, target: RunState, *, by: Actor, now: datetime, **members: Any
) -> tuple[RunRecord, bool]:
    """Move a run to another state with one write; return its current row, and whether this call moved it.

    A transition that the table of states does not allow for this actor is logged and changes nothing.
    """
    moved = False

    def change(run: RunRecord) -> RunRecord | None:
        nonlocal moved
        state = _as_asked(run, target)
        moved = is_legal(run.state, state, by)
        if not moved:
            if run.state is not state:
                logger.warning(
                    f"run {run.run_id}: no transition from {run.state} to {state} by {by}",
                    extra={"action": "illegal_transition", "run_id": run.run_id},
                )
            return None
        canceled = (
            {} if state is target else {"reason": f"{run.cancel_reason} (the job itself: {target})", "remedy": None}
        )
        return replace(run, **{**members, "state": state, "state_since": now, **canceled})

    return change_run(ledger, run, change), moved


def change_run(ledger: RunLedger, run: RunRecord, change: Callable[[RunRecord], RunRecord | None]) -> RunRecord:
    """Apply a pure change to a run; return its current row.

    If another writer was first, the row is read again and the change applied to it. ``change`` returns None if
    nothing remains to do. Raises NotFoundError, and LedgerConflictError if other writers were first each time.
    """
    run_id = run.run_id
    for _ in range(MAX_TRIES):
        changed = change(run)
        if changed is None:
            return run
        try:
            return ledger.save_run(changed)
        except LedgerConflictError:
            logger.info(f"run {run_id}: another writer was first", extra={"action": "conflict", "run_id": run_id})
        run = run_on_record(ledger, run_id)
    raise LedgerConflictError(f"run {run_id}: other writers were first {MAX_TRIES} times in a row")


def run_on_record(ledger: RunLedger, run_id: str) -> RunRecord:
    """Return a run's current row. Raises NotFoundError."""
    run = ledger.run(run_id)
    if run is None:
        raise NotFoundError(f"run {run_id} is not on record")
    return run


def _as_asked(run: RunRecord, target: RunState) -> RunState:
    """Return the state to move to: a run whose cancellation was requested ends canceled, however its job did."""
    ends = (RunState.COMPLETED, RunState.FAILED, RunState.LOST)
    return RunState.CANCELED if run.cancel_requested_at is not None and target in ends else target
