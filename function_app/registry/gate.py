"""The registration gate: whether a completed run's training report is good enough to register its model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from function_app.config.pipelines import Pipeline
from function_app.config.registration import Register, Requirement
from function_app.domain.errors import DocumentTooLargeError, LogUnreadableError, MetricsUnreadableError
from function_app.domain.failures import FailureClass
from function_app.domain.jobs import JobSpec, expected_device, report_path, runs_own_script, spec_from_json
from function_app.domain.records import RunRecord
from function_app.ports import DocumentStore, JobService, VersionLedger
from shared.errors import LandfallError
from shared.safe_text import counted
from shared.training_report import MAX_REPORT_BYTES, TrainingReport, TrainingReportError, printed_metrics

MAX_LOG_BYTES = 256 << 10
"""The end of a log in which printed metrics are looked for."""
MLFLOW_RUN, LOG_OF_RANK_0 = "the MLflow run", "the log of rank 0"
MAX_SHOWN_CHARS = 50
"""Length to which a value of a report is cut in a reason."""


@dataclass(frozen=True, kw_only=True)
class MetricsOnlyReport(TrainingReport):
    """The metrics that a user's script without a report logged to MLflow or printed."""

    metrics_from: str
    """The source, as history and lineage state it."""


class GateError(LandfallError):
    """The report does not allow a registration; the message names each requirement and the value."""

    failure_class: FailureClass | None = None
    """The cause, if it is neither the data nor the training."""

    def __init__(self, message: str, *, comparison: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.comparison = comparison
        """The comparison with the current model, if that is the reason."""


class MissingMetricError(GateError):
    """The pipeline requires a metric that the report does not have: a mistake in the pipeline's file."""

    failure_class = FailureClass.CONFIGURATION


class MissingResourcesError(GateError):
    """The report states fewer ranks or nodes than requested, or another device."""

    failure_class = FailureClass.MISSING_RESOURCES


class OtherDataError(GateError):
    """The report is about other data than the run's."""


def superseded_by(run: RunRecord, ledger: VersionLedger) -> str | None:
    """Return which generation superseded the run's, for lineage and notification; None if it is the latest."""
    latest = ledger.latest_generation(run.dataset_version)
    if latest is None or latest.number <= run.generation:
        return None
    return f"generation {run.generation} was superseded by generation {latest.number} before the run ended"


def check_superseded(run: RunRecord, register: Register, ledger: VersionLedger) -> str | None:
    """Return which generation superseded the run's. Raises GateError if register.superseded is keep."""
    superseded = superseded_by(run, ledger)
    if superseded is not None and register.superseded == "keep":
        raise GateError(f"{superseded}, and register.superseded is keep")
    return superseded


def read_report(run: RunRecord, run_outputs: DocumentStore, jobs: JobService) -> TrainingReport:
    """Return the report of a completed run; without a file, of what a user's script logged to MLflow or printed.

    Raises GateError if it is missing, damaged or about other data.
    """
    spec = spec_from_json(run.spec)
    own = runs_own_script(spec.command)
    path = report_path(spec)
    try:
        text = run_outputs.read(path, max_bytes=MAX_REPORT_BYTES)
    except DocumentTooLargeError as error:
        raise GateError(str(error)) from error
    missing = f"the job completed without a training report: {path} does not exist in the runs container"
    if text is None:
        if own:
            return _without_file(run, spec, jobs, missing)
        raise GateError(missing)
    try:
        report = TrainingReport.from_json(text, plain=_plain(run, spec) if own else None)
    except TrainingReportError as error:
        raise GateError(f"{path}: {error}") from error
    if report.fingerprint != run.fingerprint:
        raise OtherDataError(f"{path}: expected data {run.fingerprint[:12]}, got {report.fingerprint[:12]}")
    return report


def report_as_far_as_there_is_one(run: RunRecord, run_outputs: DocumentStore, jobs: JobService) -> TrainingReport:
    """Return the report for a registration by a person: without metrics where a user's script left none.

    Raises GateError if the report of Landfall's own training is missing or damaged, which states what was read.
    """
    try:
        return read_report(run, run_outputs, jobs)
    except OtherDataError:
        raise
    except GateError:
        spec = spec_from_json(run.spec)
        if not runs_own_script(spec.command):
            raise
        return MetricsOnlyReport(**vars(_plain(run, spec)), metrics_from="nowhere: there is none that can be read")


def _without_file(run: RunRecord, spec: JobSpec, jobs: JobService, missing: str) -> TrainingReport:
    """Return the report that the MLflow run and rank 0's log make up. Raises GateError.

    A metric that is in both has the value of the MLflow run: a library that logs there by itself need not log all.
    """
    problems, logged, printed = [], {}, {}
    try:
        logged = dict(jobs.logged_metrics(run.run_id))
    except MetricsUnreadableError as error:
        problems.append(str(error))
    try:
        printed = printed_metrics(jobs.log_tail(run.run_id, max_bytes=MAX_LOG_BYTES) or "")
    except LogUnreadableError as error:
        problems.append(f"rank 0's log cannot be read: {error}")
    if not logged and not printed:
        raise GateError(
            f"{missing}, no metric in its MLflow run, and no line such as val_accuracy=0.93 in rank 0's log"
            f"{''.join(f' ({problem})' for problem in problems)}; let the script write "
            '{"val_accuracy": 0.93} to the file that LANDFALL_REPORT names, log it to MLflow, or print such a line'
        )
    sources = [name for name, found in ((MLFLOW_RUN, logged), (LOG_OF_RANK_0, printed.keys() - logged)) if found]
    members = {**vars(_plain(run, spec)), "metrics": {**printed, **logged}}
    return MetricsOnlyReport(**members, metrics_from=" and ".join(sources))


def _plain(run: RunRecord, spec: JobSpec) -> TrainingReport:
    """Return what is known where a script writes its metrics alone: its machines were checked before it began."""
    return TrainingReport(
        run_id=run.run_id,
        fingerprint=run.fingerprint,
        metrics={},
        epochs=(),
        world_size=spec.num_nodes * spec.processes_per_node,
        num_nodes=spec.num_nodes,
        images_per_s=None,
        rank_plan={},
        seed=0,
        versions={},
        started_at="",
        ended_at="",
    )


def check_machines(run: RunRecord, report: TrainingReport) -> None:
    """Raise MissingResourcesError if a report is not of the machines that the job asked for.

    A user's script need report neither nodes nor device; both were checked before it was started.
    """
    spec = spec_from_json(run.spec)
    device = expected_device(spec.command)
    if device is None:
        return  # a job of an older deployment, whose command states nothing
    own, ranks = runs_own_script(spec.command), spec.num_nodes * spec.processes_per_node
    problems = []
    if report.world_size != ranks:
        problems.append(f"expected {counted(ranks, 'rank')}, the report says {_shown(report.world_size)}")
    if report.num_nodes != spec.num_nodes and not own:
        problems.append(f"expected {counted(spec.num_nodes, 'node')}, the report says {_shown(report.num_nodes)}")
    if device == "gpu" and report.device not in ("gpu", "simulated") and not (own and report.device is None):
        problems.append(f"expected a GPU for each rank, the report says {_shown(report.device)}")
    if problems:
        raise MissingResourcesError("; ".join(problems))


def _shown(stated: object) -> str:
    """Return a value of a report for a reason: a user's script may write anything of any length there."""
    return str(stated)[:MAX_SHOWN_CHARS]


def check_contents(run: RunRecord, report: TrainingReport) -> None:
    """Raise GateError if Landfall's own training did not compare the content of the shards with the manifest.

    A user's script need not: for it, the comparison of the shards in the container has to do.
    """
    if not report.contents_checked and not runs_own_script(spec_from_json(run.spec).command):
        raise GateError(
            "the training did not compare the shards with the accepted content, because it is an earlier "
            "version; deploy the current one, then train again"
        )


def check_gate(pipeline: Pipeline | None, report: TrainingReport) -> Register:
    """Return what to register. Raises GateError naming every requirement that is not met.

    Raises MissingMetricError if one of them can never be met, because the report has no such metric.
    """
    if pipeline is None:
        raise GateError("the dataset no longer has a pipeline, so there are no requirements to check")
    if pipeline.register_ is None:
        raise GateError(f"pipeline {pipeline.pipeline} registers no model{_throughput(pipeline, report)}")
    problems = [problem for require in pipeline.register_.require if (problem := _problem(require, report))]
    missing = any(require.metric not in report.metrics for require in pipeline.register_.require)
    if problems:
        raise (MissingMetricError if missing else GateError)("; ".join(problems))
    return pipeline.register_


def _throughput(pipeline: Pipeline, report: TrainingReport) -> str:
    """Return the throughput, which is the result of a run on synthetic data."""
    if not pipeline.data.is_synthetic:
        return ""
    measured = "nothing was timed" if report.images_per_s is None else f"{report.images_per_s:.6g} images/s"
    return f" of synthetic data; {measured} on {counted(report.world_size, 'process', 'processes')}"


def _problem(require: Requirement, report: TrainingReport) -> str | None:
    value = report.metrics.get(require.metric)
    if value is None:
        reported = ", ".join(sorted(report.metrics)) or "none"
        return f"{require.metric} is not in the training report; it has {reported}"
    if require.at_least is not None and value < require.at_least:
        return f"{require.metric}: expected at least {require.at_least}, got {value:.6g}"
    if require.at_most is not None and value > require.at_most:
        return f"{require.metric}: expected at most {require.at_most}, got {value:.6g}"
    return None
