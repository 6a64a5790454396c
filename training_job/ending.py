"""After the last epoch: which weights to export, the proof that they were, the report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from training_job import collective
from training_job.evaluation import evaluate
from training_job.export import check_exported, export
from training_job.metrics import Sums
from training_job.reporting.communication import communication
from training_job.reporting.curves import draw_curves
from training_job.reporting.model_card import write_model_card
from training_job.reporting.report import make_report, write_report
from training_job.session import Session
from training_job.variables import all_variables, assign

_TRAINING_METRICS = ("loss", "accuracy", "top5_accuracy", "auc")


def finish(session: Session) -> None:
    """Export, check and report. Raises ExportError."""
    exported_epoch = _choose_weights(session)
    own, total = evaluate(session)
    metrics = _metrics(session, exported_epoch, total)
    session.watch.enter("export", session.position.step)
    if session.world.is_root:
        folder = Path(session.job.arguments.model)
        export(session.model, folder)
        check_exported(session, folder, own)
    collective.wait_for_all("export")
    costs = communication(session)
    if session.world.is_root:
        _report(session, metrics, exported_epoch, costs)
    session.watch.enter("end", session.position.step)
    collective.wait_for_all("end")
    session.watch.stop()
    session.notices.stop()


def _choose_weights(session: Session) -> int:
    """Go back to the best epoch's weights where they are to be exported; return the epoch they are of."""
    best, last = session.position.standing.best_epoch, session.position.epoch
    if session.job.arguments.export == "last" or best == last:
        return last
    variables = all_variables(session.model, session.optimizer)
    if session.world.is_root:
        assign(variables, session.best.latest_variables())
    collective.broadcast_from_root(variables)
    return best


def _metrics(session: Session, epoch: int, total: Sums) -> dict[str, float]:
    """Return what the gate decides on: of the exported weights."""
    record: Mapping[str, float] = session.position.epochs[epoch - 1]
    trained = {name: record[name] for name in _TRAINING_METRICS if name in record}
    return {**trained, **{f"val_{name}": value for name, value in session.layout.averages(total).items()}}


def _report(session: Session, metrics: Mapping[str, float], epoch: int, costs: Mapping[str, float]) -> None:
    folder = Path(session.job.arguments.report)
    report = make_report(session, metrics, epoch, {"communication": dict(costs)})
    draw_curves(report, folder / "curves.png")
    write_model_card(session, report, Path(session.job.arguments.model) / "model_card.md")
    write_report(report, folder)
    for listener in session.listeners:
        listener.ended(folder)
