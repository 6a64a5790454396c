"""Changing a run's row: read, decide, write under its revision, and again where somebody else was first."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

from function_app.domain.errors import LedgerConflictError, NotFoundError
from function_app.domain.records import RunRecord
from function_app.domain.run_states import Actor, RunState, is_legal
from function_app.ports import Ledger

logger = logging.getLogger(__name__)

MAX_TRIES = 8


def change_run(ledger: Ledger, run_id: str, change: Callable[[RunRecord], RunRecord | None]) -> RunRecord:
    """Apply a pure change, None meaning that there is nothing to do (any more); return the run as it then stands.

    Raises NotFoundError, and LedgerConflictError where others kept winning.
    """
    for _ in range(MAX_TRIES):
        run = ledger.run(run_id)
        if run is None:
            raise NotFoundError(f"run {run_id} is not on record")
        changed = change(run)
        if changed is None:
            return run
        try:
            return ledger.save_run(changed)
        except LedgerConflictError:
            logger.info(f"run {run_id}: somebody else wrote first", extra={"action": "conflict", "run_id": run_id})
    raise LedgerConflictError(f"run {run_id}: others wrote first, {MAX_TRIES} times in a row")


def _as_asked(run: RunRecord, target: RunState) -> RunState:
    """A run whose cancellation was asked for ends canceled, however its job did."""
    ends = (RunState.COMPLETED, RunState.FAILED, RunState.LOST)
    return RunState.CANCELED if run.cancel_requested_at is not None and target in ends else target


def move_run(
    ledger: Ledger, run_id: str, target: RunState, *, by: Actor, now: datetime, **members: Any
) -> tuple[RunRecord, bool]:
    """Move a run forward; return it, and whether this call moved it.

    What is not in the table of states for this actor is refused, logged with both states, and changes nothing.
    """
    moved = False

    def change(run: RunRecord) -> RunRecord | None:
        nonlocal moved
        asked = _as_asked(run, target)
        moved = is_legal(run.state, asked, by)
        if not moved:
            if run.state is not asked:
                logger.warning(
                    f"run {run_id}: no transition from {run.state} to {asked} by {by}",
                    extra={"action": "illegal_transition", "run_id": run_id},
                )
            return None
        reason = (
            {} if asked is target else {"reason": f"{run.cancel_reason} (the job itself: {target})", "remedy": None}
        )
        return replace(run, **{**members, "state": asked, "state_since": now, **reason})

    return change_run(ledger, run_id, change), moved
