"""Changing a run's row: read, decide, write under its revision, and again where somebody else was first."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

from function_app.errors import LedgerConflictError, NotFoundError
from function_app.ledger import TRANSITIONS, Ledger, RunRecord, RunState

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


def move_run(
    ledger: Ledger, run_id: str, target: RunState, *, now: datetime, **members: Any
) -> tuple[RunRecord, bool]:
    """Move a run forward; return it, and whether this call moved it. What leads nowhere is logged and left alone."""
    moved = False

    def change(run: RunRecord) -> RunRecord | None:
        nonlocal moved
        moved = target in TRANSITIONS[run.state]
        if not moved:
            if run.state is not target:
                logger.warning(
                    f"run {run_id}: no transition from {run.state} to {target}",
                    extra={"action": "illegal_transition", "run_id": run_id},
                )
            return None
        return replace(run, state=target, state_since=now, **members)

    return change_run(ledger, run_id, change), moved
