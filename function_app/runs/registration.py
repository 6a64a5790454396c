"""Registration: a completed run's model becomes a model version if the gate allows it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from function_app.config.registration import Register
from function_app.domain.errors import SubmissionRefusedError
from function_app.domain.failures import FailureClass
from function_app.domain.jobs import TAG, ModelRegistration, runs_own_script, spec_from_json
from function_app.domain.model_versions import CurrentModel, ModelVersion
from function_app.domain.records import MAX_METRICS_CHARS, RunRecord
from function_app.domain.run_states import Actor, RunState
from function_app.ingest.stored_shards import CLOCK_SKEW
from function_app.notify.messages import evidence_in_words
from function_app.planning.predictions import shown_pace
from function_app.registry.challenge import compare_with, compared_metric, has_short_name, own_intervals
from function_app.registry.gate import (
    GateError,
    MetricsOnlyReport,
    check_contents,
    check_gate,
    check_machines,
    check_superseded,
    read_report,
    report_as_far_as_there_is_one,
    superseded_by,
)
from function_app.registry.passport import decision_members, with_passport
from function_app.registry.promotion import current_model, promote
from function_app.runs.admission import submit_again
from function_app.runs.attempts import final_members
from function_app.runs.mistakes import SCRIPT_ERRORS_TAG
from function_app.runs.transitions import move_run
from function_app.services import RunServices
from function_app.telemetry import Span, Telemetry
from shared.traces import TRACEPARENT, place_of_run, read_traceparent
from shared.training_report import TrainingReport

SUPERSEDED_TAG = TAG + "superseded"
"""Tag of a model version that names the generation which superseded its data before it was registered."""
MAX_IMAGES_PER_S = 1e9
"""Larger numbers in a report are not valid rates."""
MAX_TAG_CHARS = 256
MAX_REFUSAL_CHARS = 500
MAX_HOSTS = 100
MAX_HOST_CHARS = 64


def settle_completed(run: RunRecord, services: RunServices, *, by: Actor, beaten: str | None = None) -> RunRecord:
    """Register the model of a completed run if the gate allows it. Raises ServiceUnavailableError to try again.

    ``beaten`` states why it is not registered even if the gate allows it.
    """
    metrics: dict[str, float] = {}
    evidence: dict[str, Any] = {}
    report = None
    try:
        report = read_report(run, services.run_outputs, services.jobs)
        metrics = _kept_metrics(run, report, services)
        evidence = {"intervals": own_intervals(run, report, services)}
        register = check_completed(run, report, services)
        met = _registered_before(run, register.model, services)
        superseded = check_superseded(run, register, services.ledger) if met is None else met.tags.get(SUPERSEDED_TAG)
        _refuse_beaten(beaten)
        challenged = _challenged(run, register, services)
        compared, worse = _compared(challenged, run, report, register, services)
        evidence["comparison"] = compared
        if worse is not None and met is None:
            raise worse
        registration = _registration(run, register.model, report, superseded, _closing(run, services))
        why_not = _why_not_promoted(register, compared, superseded, worse)
        decision = decision_members(register, evidence, why_not, superseded)
        registration = with_passport(registration, run, replace(report, metrics=metrics), decision, services)
        _register(registration, run, services)
    except (GateError, SubmissionRefusedError) as error:
        blamed = error.failure_class if isinstance(error, GateError) else None
        found = final_members(run, blamed, str(error)) if blamed else {}
        if isinstance(error, _UnknownDataError):
            found = {"failure_class": FailureClass.DATA_CHANGED, "failure_evidence": error.evidence}
        found |= {"metrics": metrics, "evidence": _stated(evidence)}
        return _settled(run, RunState.NOT_REGISTERED, str(error), services, by=by, report=report, **found)
    evidence |= _promoted(registration, run, challenged, why_not, services)
    text = f"model {registration.name} version {registration.version}"
    members = {"model_name": registration.name, "model_version": registration.version, "metrics": metrics}
    members["evidence"] = _stated(evidence)
    text = "; ".join([f"{text}, promoted" if evidence["promoted"] else text, *evidence_in_words(evidence)])
    run = run if superseded is None else replace(run, reason=f"trained on superseded data: {superseded}")
    return _settled(run, RunState.REGISTERED, text, services, by=by, report=report, **members)


def _register(registration: ModelRegistration, run: RunRecord, services: RunServices) -> None:
    parent = services.telemetry.below(place_of_run(run.dataset_version, run.run_id))
    with services.telemetry.span("registered", parent, model=registration.name, model_version=registration.version):
        services.models.register(registration)


def _stated(evidence: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in evidence.items() if value not in (None, {})}


def _challenged(run: RunRecord, register: Register, services: RunServices) -> CurrentModel | None:
    """Return the version that was current before the run; a handler that died may have promoted the run's own."""
    current = current_model(register.model, services.ledger)
    if current is None or current.run_id != run.run_id or current.previous is None:
        return current
    return replace(current, **vars(current.previous), previous=None)


def _compared(
    challenged: CurrentModel | None,
    run: RunRecord,
    report: TrainingReport,
    register: Register,
    services: RunServices,
) -> tuple[Mapping[str, Any] | None, GateError | None]:
    """Return the comparison with the current model, None if there is none to make, and the error if it is worse."""
    if challenged is None or challenged.run_id == run.run_id:
        return None, None
    try:
        compared = compare_with(challenged, run, report, register, services)
    except GateError as error:
        return error.comparison, error
    return None if compared is None else compared.to_json(), None


def _why_not_promoted(
    register: Register, compared: Mapping[str, Any] | None, superseded: str | None, worse: GateError | None
) -> str | None:
    """Return why a registered version does not become the current one by itself; None if it does."""
    if register.promote == "by_person":
        return "register.promote is by_person"
    if superseded is not None:
        return "its data were superseded"
    if worse is not None:
        return str(worse)[:MAX_REFUSAL_CHARS]
    if compared is not None and compared["difference"] is None:
        return "it could not be compared with the current one"
    return None


def _promoted(
    registration: ModelRegistration,
    run: RunRecord,
    challenged: CurrentModel | None,
    why_not: str | None,
    services: RunServices,
) -> dict[str, Any]:
    """Make a registered version the current one unless there is a reason not to; return the result.

    The ledger's mark says whether it is current. The sweep repeats tags that Azure ML refused.
    """
    name, version = registration.name, ModelVersion(version=registration.version, run_id=run.run_id)
    previous = None if challenged is None else challenged.previous
    was_replaced = previous is not None and previous.version == version.version
    if why_not is None:
        why_not = "another version became current in the meantime"
        try:
            if not was_replaced:
                promote(name, version, services, by="the gate", instead_of=challenged)
        except SubmissionRefusedError as error:
            why_not = str(error)[:MAX_REFUSAL_CHARS]
    current = current_model(name, services.ledger)
    if current is not None and current.version == version.version:
        return {"promoted": True}
    return {"promoted": False, "promotion": f"not promoted: {why_not}; landfall promote {name}:{version.version}"}


def _kept_metrics(run: RunRecord, report: TrainingReport, services: RunServices) -> dict[str, float]:
    """Return the metrics that fit into the run's row: those that ``register`` names, then the first others."""
    pipeline = services.pipelines.get(run.dataset_version.dataset)
    register = None if pipeline is None else pipeline.register_
    named = [] if register is None else [*(one.metric for one in register.require), compared_metric(register)]
    kept, num_chars = set[str](), 0
    for name in dict.fromkeys([*named, *report.metrics]):
        if name is None or name not in report.metrics:
            continue
        more = len(json.dumps({name: report.metrics[name]}))  # its braces are as long as a comma and a space
        if has_short_name(name) and num_chars + more <= MAX_METRICS_CHARS:
            kept.add(name)
            num_chars += more
    return {name: value for name, value in report.metrics.items() if name in kept}


def _omitted_metrics(report: TrainingReport, kept: Mapping[str, float]) -> str:
    """Return for the history how many metrics the run's row has no room for; empty if it has all."""
    omitted = len(report.metrics) - len(kept)
    if not omitted:
        return ""
    return f"; {omitted} of {len(report.metrics)} metrics are not stored: they are too many or have too long names"


def _refuse_beaten(beaten: str | None) -> None:
    if beaten is not None:
        raise GateError(beaten)


def check_completed(run: RunRecord, report: TrainingReport, services: RunServices) -> Register:
    """Return what to register; whether its data were superseded is not checked. Raises GateError."""
    _check_data(run)
    check_machines(run, report)
    register = check_gate(services.pipelines.get(run.dataset_version.dataset), report)
    check_contents(run, report)
    return register


def _registered_before(run: RunRecord, model: str, services: RunServices) -> ModelRegistration | None:
    """Return the run's version if an earlier try registered it. What that try decided is not decided again."""
    found = services.models.find(model, model_version(run))
    return found if found is not None and found.path == _model_path(run) else None


def registration_by_person(
    run: RunRecord, register: Register, services: RunServices, *, tags: Mapping[str, str]
) -> tuple[ModelRegistration, TrainingReport]:
    """Return what a registration by a person creates, whatever the metrics are, and the report.

    The training data and machines must still be known. Raises GateError.
    """
    _check_data(run)
    report = report_as_far_as_there_is_one(run, services.run_outputs, services.jobs)
    report = replace(report, metrics=_kept_metrics(run, report, services))
    check_machines(run, report)
    check_contents(run, report)
    superseded = superseded_by(run, services.ledger)
    made = _registration(run, register.model, report, superseded, _closing(run, services))
    return replace(
        made, tags={**made.tags, **{TAG + name: value[:MAX_TAG_CHARS] for name, value in tags.items()}}
    ), report


def _reported_machines(report: TrainingReport) -> dict[str, Any]:
    """Return the machines in a training report; a user's script may write anything there."""
    details = report.details if isinstance(report.details, Mapping) else {}
    hosts = details.get("hosts")
    known = sorted({str(host)[:MAX_HOST_CHARS] for host in hosts}) if isinstance(hosts, list) else []
    return {
        "world_size": report.world_size,
        "num_nodes": report.num_nodes,
        "hosts": known[:MAX_HOSTS],
        "nodes_are_simulated": bool(details.get("nodes_are_simulated")),
    }


class _UnknownDataError(GateError):
    """A run's training data are not known."""

    def __init__(self, run: RunRecord, evidence: str) -> None:
        super().__init__(
            f"its training data are not known: {evidence}; to train on the current data: {submit_again(run)}"
        )
        self.evidence = evidence


def _check_data(run: RunRecord) -> None:
    """Raise GateError if a run's shards were written while it trained (see ``following``), or never compared."""
    if run.failure_class == FailureClass.DATA_CHANGED:
        raise _UnknownDataError(run, str(run.failure_evidence))
    if run.data_etags is None and "data" in run.spec["inputs"]:
        raise _UnknownDataError(run, "there is no record of the shards at its submission")


def model_version(run: RunRecord) -> str:
    """Return the version of a run's model: digits only, ascending with time, the same for each try.

    Date and time of planning, to the second, and four digits of the run's digest for runs of the same second.
    """
    digest = int(hashlib.sha256(run.run_id.encode()).hexdigest(), 16)
    return f"{run.created_at:%Y%m%d%H%M%S}{digest % 10_000:04d}"


def _model_path(run: RunRecord) -> str:
    return f"azureml://jobs/{run.run_id}/outputs/model"


def _closing(run: RunRecord, services: RunServices) -> dict[str, str]:
    """Return notes on the closing of a run's data: that it was a guess, or the version of the Delta table."""
    closings = services.ledger.generations(run.dataset_version)
    closing = next((one for one in closings if one.number == run.generation), None)
    if closing is None:
        return {}
    stated = {"complete_by_guess": closing.guess, "table_version": closing.table_version}
    return {name: str(value) for name, value in stated.items() if value is not None}


def _registration(
    run: RunRecord, model: str, report: TrainingReport, superseded: str | None, closing: Mapping[str, str]
) -> ModelRegistration:
    lineage = {
        "run_id": run.run_id,
        "pipeline": run.pipeline,
        "dataset_version": str(run.dataset_version),
        "generation": str(run.generation),
        "fingerprint": run.fingerprint,
        "code": str(run.spec["code_id"]).rpartition("/codes/")[2],
        "environment": str(run.spec["environment_id"]).rpartition("/environments/")[2],
        "metrics": json.dumps(report.metrics, sort_keys=True)[:256],
        **_metrics_from(run, report),
        **({"forced": "true"} if run.forced_by is not None else {}),
        **closing,
        **({"superseded": superseded} if superseded is not None else {}),
        **({"sweep_id": run.sweep_id} if run.sweep_id is not None else {}),
        **_script_errors(run),
    }
    return ModelRegistration(
        name=model,
        version=model_version(run),
        path=_model_path(run),
        description=f"Trained on {run.dataset_version} by {run.run_id}",
        tags={TAG + name: value for name, value in lineage.items()},
    )


def _metrics_from(run: RunRecord, report: TrainingReport) -> dict[str, str]:
    """Return where the metrics of a user's script come from."""
    if not runs_own_script(spec_from_json(run.spec).command):
        return {}
    return {"metrics_from": report.metrics_from if isinstance(report, MetricsOnlyReport) else "the report file"}


def _script_errors(run: RunRecord) -> dict[str, str]:
    """Return the codes of the script errors that a forced run was submitted with."""
    codes = run.spec["tags"].get(SCRIPT_ERRORS_TAG)
    return {SCRIPT_ERRORS_TAG.removeprefix(TAG): str(codes)} if codes else {}


def _settled(
    run: RunRecord,
    state: RunState,
    reason: str,
    services: RunServices,
    *,
    by: Actor,
    report: TrainingReport | None,
    **members: Any,
) -> RunRecord:
    members["reason"] = reason if state is RunState.NOT_REGISTERED else run.reason
    members["pace"] = {} if report is None else shown_pace(run, report)
    run, moved = move_run(services.ledger, run, state, by=by, now=services.clock(), **members)
    if moved:
        machines = {} if report is None else {**_reported_machines(report), **_metrics_from(run, report)}
        reason += "" if report is None else _omitted_metrics(report, run.metrics)
        services.history.record(run.run_id, f"run_{state}", reason, by=by, **machines)
        if report is not None:
            _trace_training(run, report, services.telemetry)
    return run


def _trace_training(run: RunRecord, report: TrainingReport, telemetry: Telemetry) -> None:
    """Trace the training by its report, whose members may be anything; its times must be within those of the run."""
    rate, details = report.images_per_s, report.details
    is_rate = isinstance(rate, int | float) and not isinstance(rate, bool) and 0 <= rate < MAX_IMAGES_PER_S
    if is_rate and rate is not None:
        telemetry.measure("landfall.images_per_s", rate, dataset=run.dataset_version.dataset)
    place = place_of_run(run.dataset_version, run.run_id)
    stated = read_traceparent(details.get(TRACEPARENT)) if isinstance(details, Mapping) else None
    if stated != place or run.submitted_at is None:
        return  # a script of the user, or a job of an earlier release
    try:
        began, ended = datetime.fromisoformat(report.started_at), datetime.fromisoformat(report.ended_at)
        is_within = run.submitted_at - CLOCK_SKEW <= began <= ended <= telemetry.clock() + CLOCK_SKEW
    except (TypeError, ValueError):  # no times, or times without a zone
        return
    if is_within:
        span = Span(name="training", place=place.new_child(), parent=place, started_at=began, ended_at=ended)
        span.set(images_per_s=rate if is_rate else None, world_size=run.world_size)
        telemetry.ended(span)
