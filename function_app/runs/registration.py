"""What becomes of a completed run: the gate looks at its training report, and a model is registered or not."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from function_app.config.pipelines import Pipeline, Register, Requirement
from function_app.domain.errors import DocumentTooLargeError, SubmissionRefusedError
from function_app.domain.job_plan import TAG, report_path, spec_from_json
from function_app.domain.jobs import ModelRegistration
from function_app.domain.records import RunRecord
from function_app.domain.run_states import Actor, RunState
from function_app.runs.script_check import SCRIPT_ERRORS_TAG
from function_app.runs.transitions import move_run
from function_app.services import Services
from shared.errors import LandfallError
from shared.training_report import MAX_REPORT_BYTES, TrainingReport, TrainingReportError


class GateError(LandfallError):
    """The evidence does not allow a registration; the message says which, with numbers."""


def settle_completed(run: RunRecord, services: Services, *, by: Actor) -> RunRecord:
    """Register the model of a completed run if the gate holds. Raises ServiceUnavailableError to try again later."""
    metrics: dict[str, float] = {}
    try:
        report = _report(run, services)
        metrics = dict(report.metrics)
        register = _gate(services.pipelines.get(run.dataset_version.dataset), report)
        registration = _registration(run, register.model, report)
        services.models.register(registration)
    except (GateError, SubmissionRefusedError) as error:
        return _settled(run, RunState.NOT_REGISTERED, str(error), services, by=by, metrics=metrics)
    text = f"model {registration.name} version {registration.version}"
    members = {"model_name": registration.name, "model_version": registration.version}
    return _settled(run, RunState.REGISTERED, text, services, by=by, metrics=metrics, **members)


def model_version(run: RunRecord) -> str:
    """Return the version of a run's model: digits only, ascending with time, the same at every try.

    Date and time of planning, to the second, and four digits of the run's digest for runs of the same second.
    """
    digest = int(hashlib.sha256(run.run_id.encode()).hexdigest(), 16)
    return f"{run.created_at:%Y%m%d%H%M%S}{digest % 10_000:04d}"


def _report(run: RunRecord, services: Services) -> TrainingReport:
    path = report_path(spec_from_json(run.spec))
    try:
        text = services.run_outputs.read(path, max_bytes=MAX_REPORT_BYTES)
    except DocumentTooLargeError as error:
        raise GateError(str(error)) from error
    if text is None:
        raise GateError(f"the job completed without a training report; it should be at {path} of the runs container")
    try:
        report = TrainingReport.from_json(text)
    except TrainingReportError as error:
        raise GateError(f"{path}: {error}") from error
    if report.fingerprint != run.fingerprint:
        raise GateError(f"{path} should be on data {run.fingerprint[:12]}, was on {report.fingerprint[:12]}")
    return report


def _gate(pipeline: Pipeline | None, report: TrainingReport) -> Register:
    """Return what to register. Raises GateError naming everything that does not hold."""
    if pipeline is None:
        raise GateError("the dataset's pipeline is gone, so nobody says what a good model is")
    if pipeline.register_ is None:
        raise GateError(f"pipeline {pipeline.pipeline} registers no model{_throughput(pipeline, report)}")
    problems = [problem for require in pipeline.register_.require if (problem := _problem(require, report))]
    if problems:
        raise GateError("; ".join(problems))
    return pipeline.register_


def _throughput(pipeline: Pipeline, report: TrainingReport) -> str:
    """Return what a run on synthetic data is for."""
    if not pipeline.data.is_synthetic:
        return ""
    measured = "nothing was timed" if report.images_per_s is None else f"{report.images_per_s:.6g} images/s"
    return f" of synthetic data; {measured} on {report.world_size} processes"


def _problem(require: Requirement, report: TrainingReport) -> str | None:
    value = report.metrics.get(require.metric)
    if value is None:
        reported = ", ".join(sorted(report.metrics)) or "none"
        return f"{require.metric} should be in the training report; it has {reported}"
    if require.at_least is not None and value < require.at_least:
        return f"{require.metric} should be at least {require.at_least}, was {value:.6g}"
    if require.at_most is not None and value > require.at_most:
        return f"{require.metric} should be at most {require.at_most}, was {value:.6g}"
    return None


def _registration(run: RunRecord, model: str, report: TrainingReport) -> ModelRegistration:
    lineage = {
        "run_id": run.run_id,
        "pipeline": run.pipeline,
        "dataset_version": str(run.dataset_version),
        "generation": str(run.generation),
        "fingerprint": run.fingerprint,
        "code": str(run.spec["code_id"]).rpartition("/codes/")[2],
        "environment": str(run.spec["environment_id"]).rpartition("/environments/")[2],
        "metrics": json.dumps(report.metrics, sort_keys=True)[:256],
        **({"forced": "true"} if run.forced_by is not None else {}),
        **_script_errors(run),
    }
    return ModelRegistration(
        name=model,
        version=model_version(run),
        path=f"azureml://jobs/{run.run_id}/outputs/model",
        description=f"Trained on {run.dataset_version} by {run.run_id}",
        tags={TAG + name: value for name, value in lineage.items()},
    )


def _script_errors(run: RunRecord) -> dict[str, str]:
    """Return what somebody insisted on training with, in spite of it."""
    codes = run.spec["tags"].get(SCRIPT_ERRORS_TAG)
    return {SCRIPT_ERRORS_TAG.removeprefix(TAG): str(codes)} if codes else {}


def _settled(
    run: RunRecord, state: RunState, reason: str, services: Services, *, by: Actor, **members: Any
) -> RunRecord:
    members["reason"] = reason if state is RunState.NOT_REGISTERED else run.reason
    run, moved = move_run(services.ledger, run.run_id, state, by=by, now=services.clock(), **members)
    if moved:
        services.history.record(run.run_id, f"run_{state}", reason, by=by)
    return run
