"""Messages: what recipients are sent about a run's end, and warnings that are sent once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from function_app.config.recipients import Recipient
from function_app.domain.failures import CORRECTABLE, Remedy
from function_app.domain.records import RunRecord
from function_app.domain.run_states import RunState
from function_app.notify.outbox import add_notifications, deliver
from function_app.services import NotifyServices
from shared.safe_text import counted

MAX_LOG_TAIL_CHARS = 4000
"""Maximum length of the log in a notification, because chat services limit messages."""
MAX_REASON_CHARS = 4000
"""Maximum length of the reason in a notification: it may quote a script's report, which may have any length."""


def notify_of_run(run: RunRecord, services: NotifyServices) -> bool:
    """Write and send the notifications of a run that has ended; True once all of them are sent."""
    pipeline = services.pipelines.get(run.dataset_version.dataset)
    if services.outage(run.dataset_version.dataset):
        return False  # its recipients are not known until the file is corrected
    if pipeline is not None:
        add_notifications(
            pipeline.notify, subject=run.run_id, outcome=run.state, content=_content(run), services=services
        )
    return deliver(run.run_id, services)


def notify_of_progress(run: RunRecord, outcome: str, services: NotifyServices) -> bool:
    """Notify recipients of progress that a run was submitted or has started; True if that is new."""
    pipeline = services.pipelines.get(run.dataset_version.dataset)
    if pipeline is None:
        return False
    words = {
        "run_submitted": f"was submitted to {run.spec.get('compute')}",
        "run_started": f"has started on {run.spec.get('compute')}",
    }
    ranks = f"{counted(run.num_nodes, 'node')} with {counted(run.world_size or 0, 'process', 'processes')}"
    content = {
        "text": f"{run.dataset_version}: run {run.run_id} {words[outcome]}, {ranks}.",
        "run_id": run.run_id,
        "attempt": run.attempt,
        "pipeline": run.pipeline,
        "dataset": run.dataset_version.dataset,
        "version": run.dataset_version.version,
        "generation": run.generation,
        "fingerprint": run.fingerprint,
        "compute": run.spec.get("compute"),
        "num_nodes": run.num_nodes,
        "world_size": run.world_size,
    }
    return add_notifications(pipeline.notify, subject=run.run_id, outcome=outcome, content=content, services=services)


def _content(run: RunRecord) -> dict[str, Any]:
    """Return the content of a notification: members for programs, and one text for people."""
    if run.reason is not None and len(run.reason) > MAX_REASON_CHARS:
        run = replace(run, reason=f"{run.reason[: MAX_REASON_CHARS - 1]}…")
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
        "evidence": dict(run.evidence),
        "failure_class": run.failure_class,
        "remedy": run.remedy,
        "log_tail": run.log_tail[-MAX_LOG_TAIL_CHARS:] if run.log_tail else None,
    }


def _text(run: RunRecord) -> str:
    if run.state is RunState.REGISTERED:
        metrics = ", ".join(f"{name} {value:.4g}" for name, value in sorted(run.metrics.items()))
        note = f"; {run.reason}" if run.reason else ""
        model = f"model {run.model_name} version {run.model_version}"
        done = "registered and promoted" if run.evidence.get("promoted") else "registered"
        evidence = "".join(f"; {line}" for line in evidence_in_words(run.evidence))
        return f"{run.dataset_version}: {model} is {done} ({metrics}){note}{evidence}."
    words = {
        RunState.NOT_REGISTERED: "was trained, and no model is registered",
        RunState.FAILED: "could not be trained",
        RunState.CANCELED: "was not trained to the end, the run was canceled",
        RunState.LOST: "may not have been trained, the run is lost",
    }
    text = f"{run.dataset_version} {words[run.state]}: {run.reason or 'no reason stated'} (run {run.run_id})."
    return f"{text} {_sentence(run.remedy_reason)}" if run.remedy_reason and _is_for_people(run) else text


def evidence_in_words(evidence: Mapping[str, Any]) -> Iterator[str]:
    """Yield how a registered version compares with the current one, and why it was not promoted."""
    comparison = evidence.get("comparison")
    if comparison:
        yield str(comparison["words"])
    if not evidence.get("promoted") and "promotion" in evidence:
        yield str(evidence["promotion"])


def _is_for_people(run: RunRecord) -> bool:
    """Whether the remedy's reason tells a person what to do."""
    return run.remedy == Remedy.QUARANTINE or run.failure_class in CORRECTABLE


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def warn_once(
    recipients: Iterable[Recipient],
    *,
    subject: str,
    outcome: str,
    occasion: str = "",
    content: Mapping[str, Any],
    services: NotifyServices,
) -> bool:
    """Write a warning to the outbox, at most once per occasion; True if this call wrote it.

    The sweep sends the outbox afterwards. ``content`` has a ``text``.
    """
    lines = services.ledger.history(subject)
    if any(line.action == outcome and line.details.get("occasion", "") == occasion for line in lines):
        return False
    add_notifications(
        recipients, subject=subject, outcome=outcome, occasion=occasion, content=content, services=services
    )
    services.history.record(subject, outcome, str(content["text"]), occasion=occasion)
    return True


def held_since(subject: str, name: str, services: NotifyServices, *, holds: bool, reason: str) -> datetime | None:
    """Return since when a condition holds, or None; the history records its beginning and end."""
    over = f"{name}_over"
    lines = services.ledger.history(subject)
    last = next((line for line in reversed(lines) if line.action in (name, over)), None)
    begun = last is not None and last.action == name
    if holds != begun:
        services.history.record(subject, name if holds else over, reason)
        return services.clock() if holds else None
    return last.at if last is not None and holds else None


def in_words(seconds: float) -> str:
    """Return a duration in at most two units, for messages."""
    minutes = int(seconds // 60)
    days, hours = minutes // 1440, minutes // 60 % 24
    units = ((days, "d"), (hours, "h")) if days else ((hours, "h"), (minutes % 60, "min"))
    return " ".join(f"{number} {unit}" for number, unit in units if number) or "0 min"
