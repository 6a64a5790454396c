"""Telling people how a run ended."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from function_app.ledger import SETTLED, RunRecord, RunState
from function_app.steps.notification import add_notifications, deliver
from function_app.steps.run_changes import change_run
from function_app.steps.services import Services

MAX_LOG_TAIL_CHARS = 4000
"""Of a notification: a chat message takes no more."""


def tell_about_run(run: RunRecord, services: Services) -> RunRecord:
    """Write and send the notifications of a settled run; ``notified_at`` is set once all are sent."""
    if run.state not in SETTLED or run.state is RunState.SUPPRESSED or run.notified_at is not None:
        return run
    pipeline = services.pipelines.get(run.dataset_version.dataset)
    if pipeline is not None:
        add_notifications(pipeline, subject=run.run_id, outcome=run.state, content=_content(run), services=services)
    if not deliver(run.run_id, services):
        return run
    now = services.clock()
    return change_run(
        services.ledger, run.run_id, lambda row: None if row.notified_at else replace(row, notified_at=now)
    )


def _content(run: RunRecord) -> dict[str, Any]:
    """Return what a recipient gets: facts for programs, and one text for people."""
    return {
        "text": _text(run),
        "outcome": str(run.state),
        "run_id": run.run_id,
        "attempt": run.attempt,
        "pipeline": run.pipeline,
        "dataset": run.dataset_version.dataset,
        "version": run.dataset_version.version,
        "generation": run.generation,
        "fingerprint": run.fingerprint,
        "model_name": run.model_name,
        "model_version": run.model_version,
        "metrics": dict(run.metrics),
        "reason": run.reason,
        "failure_class": run.failure_class,
        "remedy": run.remedy,
        "log_tail": run.log_tail[-MAX_LOG_TAIL_CHARS:] if run.log_tail else None,
    }


def _text(run: RunRecord) -> str:
    if run.state is RunState.REGISTERED:
        metrics = ", ".join(f"{name} {value:.4g}" for name, value in sorted(run.metrics.items()))
        return f"{run.dataset_version}: model {run.model_name} version {run.model_version} is registered ({metrics})."
    words = {
        RunState.NOT_REGISTERED: "was trained, and no model is registered",
        RunState.FAILED: "could not be trained",
        RunState.CANCELED: "was not trained to the end, the run was canceled",
        RunState.LOST: "may not have been trained, the run is lost",
    }
    return f"{run.dataset_version} {words[run.state]}: {run.reason or 'no reason given'} (run {run.run_id})."
