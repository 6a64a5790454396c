"""Option sweeps: a sweep's runs are run one after another; when all have ended, the best one is registered.

The document of a sweep states all its runs. A run's row is added when the previous run has ended, so a sweep takes
one place in the queue at a time. The verdict is a mark that is written once: the best run, or that the sweep was
canceled. All steps can be repeated; the end of any run, or the timer, continues with the next one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from function_app.domain.errors import NotFoundError, OptionSweepError
from function_app.domain.events import TrainingRequest
from function_app.domain.failures import CORRECTABLE
from function_app.domain.option_sweeps import ENDED, MAX_RUNS, SWEEP_PREFIX, OptionSweep, SweepVerdict, verdict_on
from function_app.domain.records import RunRecord
from function_app.domain.run_states import SETTLED, Actor, RunState
from function_app.notify.outbox import add_notifications, deliver
from function_app.ports import DocumentStore, RunLedger, RunsLedger
from function_app.registry.gate import GateError, check_superseded, read_report
from function_app.runs.admission import awaits_attempt, last_attempt, release
from function_app.runs.comparison import Comparison, compared, member
from function_app.runs.registration import check_completed, settle_completed
from function_app.runs.transitions import run_on_record
from function_app.services import RunServices

MAX_DOCUMENT_BYTES = 16 << 20
MAX_CONTENT_CHARS = 50_000
"""Length of a notification with all runs; a row of the outbox has room for twice as much."""
MAX_TEXT_CHARS = 4000


def document_path(sweep_id: str) -> str:
    """Return the path of a sweep's document within the state container."""
    return f"option-sweeps/{sweep_id}.json"


def read_sweep(sweep_id: str, documents: DocumentStore) -> OptionSweep:
    """Return an option sweep. Raises NotFoundError."""
    content = documents.read(document_path(sweep_id), max_bytes=MAX_DOCUMENT_BYTES)
    if content is None:
        raise NotFoundError(f"option sweep {sweep_id} does not exist")
    return OptionSweep.from_json(content)


def verdict_of(sweep_id: str, ledger: RunsLedger) -> SweepVerdict | None:
    """Return how a sweep ends; None if that is not decided."""
    text = ledger.mark(_mark(sweep_id))
    return None if text is None else SweepVerdict.from_text(text)


def runs_of(sweep: OptionSweep, ledger: RunLedger) -> list[RunRecord]:
    """Return the last attempt of each run that is on record, in order."""
    runs = []
    for planned in sweep.runs:
        run = last_attempt(planned.run_id, ledger)
        if run is None:
            break
        runs.append(run)
    return runs


def refused_best(verdict: SweepVerdict, runs: Sequence[RunRecord]) -> RunRecord | None:
    """Return the best run of a sweep if its model was refused, by `register.compare` or by Azure ML."""
    ends = (run for run in runs if run.run_id == verdict.best and run.state in SETTLED)
    return next((run for run in ends if run.state is not RunState.REGISTERED), None)


def why_decided(verdict: SweepVerdict, runs: Sequence[RunRecord]) -> str:
    """Return the reason of a verdict, and why the best run is not registered if it was refused."""
    refused = refused_best(verdict, runs)
    if refused is None:
        return verdict.reason
    return f"{verdict.reason}; run {refused.run_id} is {refused.state.replace('_', ' ')}: {refused.reason}"


def has_ended(run: RunRecord) -> bool:
    """Whether a run has ended and no further attempt follows."""
    return run.state in ENDED and not awaits_attempt(run)


def settle_in_sweep(run: RunRecord, services: RunServices) -> RunRecord:
    """Let a completed run wait for the comparison, which may be due now; return its current row."""
    release(run, services, by=Actor.RECONCILIATION)
    go_on(str(run.sweep_id), services)
    return run_on_record(services.ledger, run.run_id)


def go_on(sweep_id: str, services: RunServices) -> bool:
    """Do the next step of a sweep: start a run, or compare runs and notify people; True once complete."""
    sweep = read_sweep(sweep_id, services.documents)
    if services.outage(sweep.dataset):
        return False  # its pipeline, once it is corrected, decides what is registered and who is notified
    runs, verdict = runs_of(sweep, services.ledger), verdict_of(sweep_id, services.ledger)
    if verdict is None:
        if runs and not has_ended(runs[-1]):
            return False
        is_stopped = any(run.state is RunState.SUPPRESSED for run in runs)
        if len(runs) < len(sweep.runs) and not is_stopped:
            start_run(sweep, len(runs) + 1, services)
            return False
        verdict = claim_verdict(sweep, _verdict(sweep, runs, services), services)
    settled = [_settled(run, verdict, services) for run in runs]
    if not all(run.state in SETTLED and has_ended(run) for run in settled):
        return False
    return _notify(sweep, verdict, settled, services)


def start_run(sweep: OptionSweep, number: int, services: RunServices) -> tuple[RunRecord, bool]:
    """Add the row of a run, numbered from 1, and request its submission; return the run, and whether it is new."""
    planned = sweep.row(number, services.clock())
    is_new = services.ledger.add_run(planned)
    if is_new:
        text = f"run {number} of {len(sweep.runs)} of option sweep {sweep.sweep_id}"
        services.history.record(planned.run_id, "run_planned", text, overrides=dict(sweep.runs[number - 1].options))
        services.history.record(sweep.sweep_id, "run_planned", f"run {number} of {len(sweep.runs)}: {planned.run_id}")
        services.requests.send(
            TrainingRequest(
                dataset_version=planned.dataset_version,
                generation=planned.generation,
                trigger=planned.trigger,
                run_id=planned.run_id,
            )
        )
    return run_on_record(services.ledger, planned.run_id), is_new


def claim_verdict(sweep: OptionSweep, verdict: SweepVerdict, services: RunServices) -> SweepVerdict:
    """Record how a sweep ends, unless it is already recorded; return the recorded verdict."""
    if services.ledger.change_mark(_mark(sweep.sweep_id), None, verdict.to_text()):
        action = "sweep_canceled" if verdict.is_canceled else "sweep_decided"
        reason = verdict.reason if verdict.best is None else f"run {verdict.best} is {verdict.reason}"
        for subject in (sweep.sweep_id, str(sweep.dataset_version)):
            services.history.record(subject, action, reason, sweep_id=sweep.sweep_id)
        return verdict
    return verdict_of(sweep.sweep_id, services.ledger) or verdict


def _verdict(sweep: OptionSweep, runs: Sequence[RunRecord], services: RunServices) -> SweepVerdict:
    """Compare the runs of a sweep. It is spent if none is registered for a reason that may not apply next time."""
    verdict = verdict_on(sweep, _passing(sweep, runs, services))
    undelivered = any(run.state is RunState.SUPPRESSED or run.failure_class in CORRECTABLE for run in runs)
    return replace(verdict, is_spent=verdict.best is None and undelivered)


def _mark(sweep_id: str) -> str:
    return f"option-sweeps/{sweep_id}"


def _passing(sweep: OptionSweep, runs: Sequence[RunRecord], services: RunServices) -> dict[str, float]:
    """Return the metric of each completed run that the gate allows to register, by its id."""
    passing = {}
    for run in runs:
        if run.state is not RunState.COMPLETED:
            continue
        try:
            report = read_report(run, services.run_outputs, services.jobs)
            check_superseded(run, check_completed(run, report, services), services.ledger)
        except GateError:
            continue
        if sweep.metric is not None and sweep.metric in report.metrics:
            passing[run.run_id] = report.metrics[sweep.metric]
    return passing


def _settled(run: RunRecord, verdict: SweepVerdict, services: RunServices) -> RunRecord:
    """Register the model of a completed run if it is the best one."""
    if run.state is not RunState.COMPLETED:
        return run
    beaten = None
    if verdict.is_canceled:
        beaten = f"its option sweep was canceled: {verdict.reason}"
    elif run.run_id != verdict.best:
        better = f"run {verdict.best} is better: it is " if verdict.best else "its option sweep has ended: "
        beaten = f"{better}{verdict.reason}"
    return settle_completed(run, services, by=Actor.RECONCILIATION, beaten=beaten)


def compare(names: Sequence[str], services: RunServices) -> Comparison:
    """Compare the last attempts of some runs; the id of a sweep stands for its runs.

    Raises NotFoundError, and OptionSweepError for too many of them.
    """
    runs: dict[str, RunRecord] = {}
    for name in dict.fromkeys(names):
        is_sweep = name.startswith(SWEEP_PREFIX)
        found = runs_of(read_sweep(name, services.documents), services.ledger) if is_sweep else [_run(name, services)]
        runs |= {run.run_id: run for run in found}
        if max(len(runs), len(names)) > MAX_RUNS:
            raise OptionSweepError(f"at most {MAX_RUNS} runs can be compared at once")
    return compared(list(runs.values()), services)


def _run(run_id: str, services: RunServices) -> RunRecord:
    run = last_attempt(run_id, services.ledger)
    if run is None:
        raise NotFoundError(f"run {run_id} does not exist")
    return run


# -- one notification for all runs ----------------------------------------------------------------------------
def _notify(sweep: OptionSweep, verdict: SweepVerdict, runs: Sequence[RunRecord], services: RunServices) -> bool:
    pipeline = services.pipelines.get(sweep.dataset)
    outcome = "sweep_canceled" if verdict.is_canceled else "sweep_ended"
    recipients = [one for one in pipeline.notify if one.wants(outcome)] if pipeline else []
    names = {one.name for one in recipients}
    if len(services.ledger.notifications(sweep.sweep_id)) < len(names):
        content = _content(sweep, verdict, compared(runs, services))
        add_notifications(
            recipients, subject=sweep.sweep_id, outcome=outcome, content=_bounded(content), services=services
        )
    return deliver(sweep.sweep_id, services)


def _content(sweep: OptionSweep, verdict: SweepVerdict, comparison: Comparison) -> dict[str, Any]:
    runs = [row.run for row in comparison.runs]
    best = next((run for run in runs if run.state is RunState.REGISTERED), None)
    return {
        "text": "\n".join([_headline(sweep, verdict, runs, best), *_lines(sweep, comparison)]),
        "sweep_id": sweep.sweep_id,
        "pipeline": sweep.pipeline,
        "dataset": sweep.dataset,
        "version": sweep.version,
        "generation": sweep.generation,
        "fingerprint": sweep.fingerprint,
        "best": best.run_id if best else None,
        "model_name": best.model_name if best else None,
        "model_version": best.model_version if best else None,
        "runs": [member(row) for row in comparison.runs],
    }


def _bounded(content: dict[str, Any]) -> dict[str, Any]:
    """Omit the runs' metrics if scripts report too much for the outbox."""
    if len(json.dumps(content)) <= MAX_CONTENT_CHARS:
        return content
    content["text"] = content["text"][:MAX_TEXT_CHARS]
    content["runs"] = [{name: run[name] for name in ("run_id", "outcome")} for run in content["runs"]]
    return content


def _headline(sweep: OptionSweep, verdict: SweepVerdict, runs: Sequence[RunRecord], best: RunRecord | None) -> str:
    start = f"{sweep.dataset_version}: option sweep {sweep.sweep_id}"
    if verdict.is_canceled:
        return f"{start} was canceled, and no model is registered: {verdict.reason}."
    if best is None:
        return f"{start} has ended, and no model is registered: {why_decided(verdict, runs)}."
    model = f"model {best.model_name} version {best.model_version}"
    return f"{start} has ended: {model} of run {best.run_id} is registered, {verdict.reason}."


def _lines(sweep: OptionSweep, comparison: Comparison) -> Iterator[str]:
    """Yield a line for each run: options, metric, end, and time."""
    for number, planned in enumerate(sweep.runs):
        options = ", ".join(f"{name} {value}" for name, value in planned.options.items())
        if number >= len(comparison.runs):
            yield f"{options}: not started"
            continue
        row = comparison.runs[number]
        metric = row.metrics.get(sweep.metric or "")
        reached = "" if metric is None else f"{sweep.metric} {metric:.6g}, "
        cost = "" if row.cost is None else f", cost {row.cost:.2f}"
        yield f"{options}: {reached}{row.run.state.replace('_', ' ')}, {row.node_hours:.2g} node-hours{cost}"
