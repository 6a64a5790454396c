"""The training loop, the same on every rank: steps, the end of an epoch, checkpoints."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import tensorflow as tf
from crc32c import crc32c

from training_job import collective
from training_job.checkpoints.store import CheckpointStore
from training_job.checkpoints.variables import all_variables, statistics, to_arrays
from training_job.data.dataset import next_batch
from training_job.errors import InterruptedTrainingError, NonFiniteLossError, RanksPartedError
from training_job.evaluation import evaluate
from training_job.liveness.liveness import CONTENTS_PLACE
from training_job.reporting.metrics import Sums
from training_job.schedule import after_epoch
from training_job.session import Session
from training_job.steps import Batch

PROGRESS_INTERVAL_S = 10.0
"""Between two progress lines within an epoch; the end of an epoch always prints one."""

_BAD, _BAD_RANKS, _STOP, _SAVE = range(4)
"""Indices in the global flags; see `training_job.steps.Update`."""


def train(session: Session) -> None:
    """Train until the last epoch, or until early stopping. Raises TrainingError."""
    save_best(session)  # an earlier attempt may have ended between an epoch's two checkpoints
    while session.position.epoch < session.job.arguments.epochs and not session.position.standing.stopped:
        close_epoch(session, _train_epoch(session))


class _Pace:
    """When the last progress line was printed, and when the last checkpoint within an epoch was saved."""

    def __init__(self) -> None:
        self.reported = self.saved = time.monotonic()


def _train_epoch(session: Session) -> Sums:
    """Train the rest of the current epoch; return this rank's sums."""
    start, pace = session.position, _Pace()
    sums = _sums_so_far(session)
    batches = iter(session.inputs.training.training_epoch(start.epoch, start.step_of_epoch))
    for _ in range(start.step_of_epoch, session.job.training.steps):
        step_sums, global_flags = _step(session, batches, pace)
        sums += step_sums
        _check_finite(global_flags, session)
        if _must_save(session, global_flags):
            sums = save_within_epoch(session, sums)
            pace.saved = time.monotonic()
        if global_flags[_STOP]:
            raise InterruptedTrainingError(_interrupted(session))
        _report_progress(session, sums, pace)
    return sums


def _sums_so_far(session: Session) -> Sums:
    """Return the sums of an interrupted epoch, on the root only, because they cover all ranks."""
    if session.world.is_root and session.position.sums:
        return np.array(session.position.sums)
    return session.layout.no_sums()


def _step(session: Session, batches: Iterator[Batch], pace: _Pace) -> tuple[Sums, Sums]:
    """Run one step; return this rank's sums and the global flags."""
    position, began = session.position, time.perf_counter()
    session.watch.enter("reading", position.step)
    if session.inputs.check is not None:
        session.inputs.check.raise_failure()
    batch = next_batch(batches, session.world.rank)
    read = time.perf_counter()
    session.watch.enter("step" if position.step != session.job.start.step else "first step", position.step)
    sums, flags = session.update(batch, _rate(session), _local_flags(session, pace))
    step_sums, global_flags = sums.numpy().astype(np.float64), flags.numpy()
    session.times.note(wait_s=read - began, step_s=time.perf_counter() - read)
    session.position = replace(position, step=position.step + 1, step_of_epoch=position.step_of_epoch + 1)
    return step_sums, global_flags


def _rate(session: Session) -> tf.Tensor:
    position = session.position
    passed = position.epoch + position.step_of_epoch / session.job.training.steps
    return tf.constant(session.schedule.rate(passed) * position.standing.rate_factor, tf.float32)


def _local_flags(session: Session, pace: _Pace) -> tf.Tensor:
    minutes = session.job.arguments.checkpoint_minutes
    save_due = minutes and session.world.is_root and time.monotonic() - pace.saved > minutes * 60
    save = bool(save_due) or session.notices.checkpoint_wanted()
    return tf.constant([float(session.stop.requested), float(save)], tf.float32)


def _check_finite(global_flags: Sums, session: Session) -> None:
    if global_flags[_BAD] == 0:
        return
    where = f"rank {int(global_flags[_BAD_RANKS])}" if global_flags[_BAD] == 1 else f"{int(global_flags[_BAD])} ranks"
    raise NonFiniteLossError(
        f"The loss of step {session.position.step} (epoch {session.position.epoch + 1}) on {where} is NaN or "
        f"infinite. Try a lower learning rate or a longer warm-up, and look for damaged records. "
        f"The last checkpoint is from before this step."
    )


def _must_save(session: Session, global_flags: Sums) -> bool:
    every = session.job.arguments.checkpoint_steps
    due = every and session.position.step % every == 0
    at_the_end = session.position.step_of_epoch == session.job.training.steps
    return bool(global_flags[_STOP]) or (bool(due or global_flags[_SAVE]) and not at_the_end)


def _interrupted(session: Session) -> str:
    position = session.position
    return (
        f"The training was asked to stop and did so after step {position.step} (epoch {position.epoch + 1}, step "
        f"{position.step_of_epoch} of {session.job.training.steps}). A checkpoint is saved in "
        f"{session.job.checkpoints.folder}: the next attempt continues from there."
    )


def _report_progress(session: Session, sums: Sums, pace: _Pace) -> None:
    if session.listeners and time.monotonic() - pace.reported > PROGRESS_INTERVAL_S:
        pace.reported = time.monotonic()
        for listener in session.listeners:
            listener.within_epoch(session.position, session.layout.averages(sums), session.times.images_per_s)


def close_epoch(session: Session, sums: Sums) -> None:
    """Evaluate, decide, save and report; every rank decides on the same numbers."""
    trained = session.layout.averages(collective.sum_over_ranks(sums, "training"))
    collective.average_variables(statistics(session.model))
    check_equal_weights(session)
    agree_on_contents(session)
    _, total = evaluate(session)
    validation = {f"val_{name}": value for name, value in session.layout.averages(total).items()}
    _advance(session, {**trained, **validation})
    session.watch.enter("checkpoint", session.position.step)
    write_checkpoint(session, session.job.checkpoints)
    save_best(session)
    for listener in session.listeners:
        listener.epoch_ended(session.position)
    # The graphs of an epoch's data are reference cycles: few objects with much memory. Python looks for old cycles
    # by their number, so without this call a rank grows with every epoch.
    gc.collect()


def _advance(session: Session, metrics: dict[str, float]) -> None:
    position, epoch = session.position, session.position.epoch + 1
    standing = after_epoch(position.standing, session.rules, metrics, epoch)
    rate = session.schedule.rate(epoch) * position.standing.rate_factor
    record = {"epoch": float(epoch), **metrics, "learning_rate": rate, **session.times.take_epoch()}
    session.position = replace(
        position,
        epoch=epoch,
        step_of_epoch=0,
        sums=(),
        standing=standing,
        epochs=(*position.epochs, record),
    )


def agree_on_contents(session: Session) -> None:
    """Return once every rank has read its part of the shards and found it unchanged.

    Raises DataChangedError on the rank that found other content; the other ranks end with it.
    """
    if session.inputs.check is not None:
        session.watch.enter(CONTENTS_PLACE, session.position.step)
        session.inputs.check.wait()
        collective.wait_for_all("contents")


def check_equal_weights(session: Session) -> None:
    """Compare a digest of every rank's weights with the root's. Raises RanksPartedError naming those that differ."""
    digests = np.zeros(session.world.size, np.float64)
    digests[session.world.rank] = _weights_crc32c(session)
    digests = collective.sum_over_ranks(digests, "agreement")
    parted = [rank for rank, digest in enumerate(digests) if digest != digests[0]]
    if parted:
        raise RanksPartedError(
            f"After step {session.position.step} the weights of ranks {parted} differ from those of the root. "
            f"Something changes weights outside of the training step, or a node computes incorrectly."
        )


def _weights_crc32c(session: Session) -> int:
    crc = 0
    for weight in session.model.weights:
        crc = crc32c(np.ascontiguousarray(np.asarray(weight)).tobytes(), crc)
    return crc


def save_within_epoch(session: Session, sums: Sums) -> Sums:
    """Save a checkpoint in the middle of an epoch, on all ranks together; return the sums to continue with."""
    session.watch.enter("checkpoint", session.position.step)
    total = collective.sum_over_ranks(sums, "checkpoint")
    session.position = replace(session.position, sums=tuple(total.tolist()))
    collective.average_variables(statistics(session.model))
    write_checkpoint(session, session.job.checkpoints)
    session.notices.checkpoint_saved()
    return total if session.world.is_root else session.layout.no_sums()


def save_best(session: Session) -> None:
    """Save the weights in the folder of the best epoch, if they are those of its end and are to be exported."""
    position = session.position
    # Not `step_of_epoch`: a resumed attempt with a larger global batch rounds it down, to 0 too.
    between_epochs = position.epoch > 0 and not position.sums
    if session.job.arguments.export == "best" and between_epochs and position.standing.best_epoch == position.epoch:
        write_checkpoint(session, session.best)


def write_checkpoint(session: Session, store: CheckpointStore) -> None:
    """Write a checkpoint if this rank is the root."""
    if session.world.is_root:
        store.save(session.position, to_arrays(all_variables(session.model, session.optimizer)))
