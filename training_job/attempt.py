"""One attempt on one rank: join the other ranks, train, export the model, verify the export, report."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from shared.output_files import put_bytes, put_folder
from shared.training_report import EXAMPLES_NAME, FILE_NAME, TrainingReport
from training_job import collective
from training_job.checkpoints.variables import all_variables, assign
from training_job.data.damage import find_damage
from training_job.errors import (
    CheckpointError,
    ConfigurationError,
    DataError,
    NonFiniteLossError,
    TrainingError,
    UnreadableDataError,
)
from training_job.evaluation import check_exported, evaluate, export, no_results
from training_job.job import Job
from training_job.liveness.interruptions import StopRequest
from training_job.liveness.liveness import DAMAGE_PLACE
from training_job.machines import announce
from training_job.reporting.communication import communication
from training_job.reporting.example_results import ExampleResults
from training_job.reporting.metrics import Sums
from training_job.reporting.report import curves, make_report, model_card
from training_job.session import Session, open_session
from training_job.training_loop import agree_on_contents, train

CARD_NAME = "model_card.md"
_TRAINING_METRICS = ("loss", "accuracy", "top5_accuracy", "auc")


def run(job: Job, stop: StopRequest) -> None:
    """Train on this rank together with the other ranks. Raises TrainingError."""
    session = open_session(job, stop)
    announce(session.hosts)
    try:
        train(session)
        finish(session)
        if job.arguments.timeline:
            collective.leave()
    except NonFiniteLossError:
        agree_on_contents(session)  # data that differs from the accepted data is not a mistake in the options
        raise
    except (ConfigurationError, UnreadableDataError) as error:
        raise _explained(error, session) from error.__cause__
    finally:
        for listener in session.listeners:
            listener.close()


def finish(session: Session) -> None:
    """Export, check and report. Raises ExportError."""
    agree_on_contents(session)  # for an attempt that resumes after the last epoch
    exported_epoch = _choose_weights(session)
    results = no_results(session)
    own, total = evaluate(session, results)
    metrics = _metrics(session, exported_epoch, total)
    session.watch.enter("export", session.position.step)
    if results is not None:
        _write_results(session, results)
    model_files = _export(session, own) if session.world.is_root else {}
    collective.wait_for_all("export")
    costs = communication(session)
    if session.world.is_root:
        _report(session, metrics, exported_epoch, {"communication": dict(costs), "model_files": model_files})
    session.watch.enter("end", session.position.step)
    collective.wait_for_all("end")
    session.watch.stop()
    session.notices.stop()


def _export(session: Session, own: Sums) -> dict[str, str]:
    """Export, check and store the model; return the SHA-256 of each of its files, by its path in the folder."""
    with tempfile.TemporaryDirectory(prefix="model-") as local:
        export(session.model, Path(local))
        check_exported(session, Path(local), own)
        put_folder(Path(local), Path(session.job.arguments.model))
        return _digests(Path(local))


def _digests(folder: Path) -> dict[str, str]:
    found = {}
    for path in sorted(one for one in folder.rglob("*") if one.is_file()):
        with path.open("rb") as file:
            found[path.relative_to(folder).as_posix()] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def _put_model_card(session: Session, report: TrainingReport) -> TrainingReport:
    """Store the model card beside the model; return the report with the card's SHA-256 among those of the files."""
    card = model_card(session, report).encode()
    put_bytes(card, Path(session.job.arguments.model) / CARD_NAME)
    files = report.details["model_files"] | {CARD_NAME: hashlib.sha256(card).hexdigest()}
    return replace(report, details={**report.details, "model_files": files})


def _write_results(session: Session, results: ExampleResults) -> None:
    """Write the results of each validation example before the report, which states that all outputs exist."""
    values = collective.sum_over_ranks(results.values, "example results")
    if session.world.is_root:
        shards = session.job.manifest.split(session.job.validation.split)
        put_bytes(results.to_parquet(shards, values), Path(session.job.arguments.report) / EXAMPLES_NAME)


def _choose_weights(session: Session) -> int:
    """Restore the best epoch's weights if those are to be exported; return the epoch of the exported weights.

    Raises CheckpointError if they are lost.
    """
    best, last = session.position.standing.best_epoch, session.position.epoch
    if session.job.arguments.export == "last" or best == last:
        return last
    variables = all_variables(session.model, session.optimizer)
    if session.world.is_root:
        stored = session.best.latest_position()
        if stored is None or stored.epoch != best:
            found = f"the weights of epoch {stored.epoch}" if stored else "no checkpoint"
            raise CheckpointError(
                f"{session.best.folder} has {found} instead of the weights of the best epoch, {best}. "
                f"Train with `export: last`, or from the beginning."
            )
        assign(variables, session.best.latest_variables())
    collective.broadcast_from_root(variables)
    return best


def _metrics(session: Session, epoch: int, total: Sums) -> dict[str, float]:
    """Return the metrics of the exported weights, which decide whether the model is registered."""
    record: Mapping[str, float] = session.position.epochs[epoch - 1]
    trained = {name: record[name] for name in _TRAINING_METRICS if name in record}
    return {**trained, **{f"val_{name}": value for name, value in session.layout.averages(total).items()}}


def _report(session: Session, metrics: Mapping[str, float], epoch: int, extra: Mapping[str, Any]) -> None:
    folder = Path(session.job.arguments.report)
    report = make_report(session, metrics, epoch, extra)
    put_bytes(curves(report), folder / "curves.png")
    report = _put_model_card(session, report)
    put_bytes(report.to_json().encode(), folder / FILE_NAME)
    for listener in session.listeners:
        listener.ended(folder)


def _explained(error: TrainingError, session: Session) -> TrainingError:
    """Return the error to report: one that names the record at which TensorFlow stopped, if that is the cause.

    Raises DataChangedError if the data is not the accepted data: the options are then not the cause.
    """
    epoch = session.position.epoch
    session.watch.enter(DAMAGE_PLACE, session.position.step)
    damage = find_damage(session.inputs.suspects(epoch), session.job.manifest.data_format)
    session.watch.enter(DAMAGE_PLACE, session.position.step)
    if misfit := session.inputs.misfit(epoch):
        return ConfigurationError(f"{misfit}.")
    return error if isinstance(error, ConfigurationError) else DataError(f"{error} {damage}")
