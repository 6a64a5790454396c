"""What happens after an epoch's last step: metrics, decisions, checkpoint, progress."""

from __future__ import annotations

import gc
from dataclasses import replace

from training_job import collective
from training_job.agreement import check_together
from training_job.decisions import after_epoch
from training_job.evaluation import evaluate
from training_job.metrics import Sums
from training_job.saving import write
from training_job.session import Session
from training_job.variables import statistics


def close_epoch(session: Session, sums: Sums) -> None:
    """Evaluate, decide, save and tell; every rank decides on the same numbers."""
    trained = session.layout.averages(collective.summed(sums, "training"))
    collective.average_variables(statistics(session.model))
    check_together(session)
    _, total = evaluate(session)
    validation = {f"val_{name}": value for name, value in session.layout.averages(total).items()}
    _move_on(session, {**trained, **validation})
    _keep_cache(session)
    session.watch.enter("checkpoint", session.position.step)
    write(session, session.job.checkpoints)
    if session.job.arguments.export == "best" and session.position.standing.best_epoch == session.position.epoch:
        write(session, session.best)
    for listener in session.listeners:
        listener.epoch_ended(session.position)
    # The graphs of an epoch's data are cycles, few objects with much memory, and Python looks for old cycles by their
    # number: left to itself a rank grew by 0.6 MiB in every epoch.
    gc.collect()


def _move_on(session: Session, metrics: dict[str, float]) -> None:
    position, epoch = session.position, session.position.epoch + 1
    standing = after_epoch(position.standing, session.rules, metrics, epoch)
    rate = session.schedule.rate(epoch) * position.standing.rate_factor
    record = {"epoch": float(epoch), **metrics, "learning_rate": rate, **session.times.of_epoch()}
    session.position = replace(
        position,
        epoch=epoch,
        step_of_epoch=0,
        sums=(),
        standing=standing,
        epochs=(*position.epochs, record),
    )


def _keep_cache(session: Session) -> None:
    """Have copied what was read, before the next epoch reads it again."""
    if session.inputs.cache is not None:
        session.inputs.cache.wait()
