"""The training loop: the same on every rank, step by step."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import tensorflow as tf

from training_job import collective
from training_job.data.reading import next_batch
from training_job.epoch_end import close_epoch
from training_job.errors import InterruptedTrainingError, NonFiniteLossError
from training_job.metrics import Sums
from training_job.saving import save
from training_job.session import Session
from training_job.steps import Batch

PROGRESS_INTERVAL_S = 10.0
"""Within an epoch; each epoch's end is told anyhow."""

_BAD, _BAD_RANKS, _STOP, _SAVE = range(4)
"""What ranks hear of each other after every step; see `training_job.steps.Update`."""


def train(session: Session) -> None:
    """Train to the last epoch, or to the end that early stopping decides on. Raises TrainingError."""
    while session.position.epoch < session.job.arguments.epochs and not session.position.standing.stopped:
        close_epoch(session, _train_epoch(session))


class _Pace:
    """When something was last done that is done by the clock."""

    def __init__(self) -> None:
        self.told = self.saved = time.monotonic()


def _train_epoch(session: Session) -> Sums:
    """Train what is left of the running epoch; return this rank's sums."""
    start, pace = session.position, _Pace()
    sums = _sums_so_far(session)
    batches = iter(session.inputs.training.training_epoch(start.epoch, start.step_of_epoch))
    for _ in range(start.step_of_epoch, session.job.training.steps):
        own, news = _step(session, batches, pace)
        sums += own
        _check_finite(news, session)
        if _must_save(session, news):
            sums = save_within_epoch(session, sums)
            pace.saved = time.monotonic()
        if news[_STOP]:
            raise InterruptedTrainingError(_interrupted(session))
        _tell_progress(session, sums, pace)
    return sums


def _sums_so_far(session: Session) -> Sums:
    """Return the sums of an epoch that was interrupted: on the root, for they are over all ranks."""
    if session.world.is_root and session.position.sums:
        return np.array(session.position.sums)
    return session.layout.no_sums()


def _step(session: Session, batches: Iterator[Batch], pace: _Pace) -> tuple[Sums, Sums]:
    """Take one step; return this rank's sums and what ranks heard of each other."""
    position, began = session.position, time.perf_counter()
    session.watch.enter("reading", position.step)
    batch = next_batch(batches, session.world.rank)
    read = time.perf_counter()
    session.watch.enter("step" if position.step != session.job.start.step else "first step", position.step)
    sums, news = session.update(batch, _rate(session), _wishes(session, pace))
    own, heard = sums.numpy().astype(np.float64), news.numpy()
    session.times.note(wait_s=read - began, step_s=time.perf_counter() - read)
    session.position = replace(position, step=position.step + 1, step_of_epoch=position.step_of_epoch + 1)
    return own, heard


def _rate(session: Session) -> tf.Tensor:
    position = session.position
    passed = position.epoch + position.step_of_epoch / session.job.training.steps
    return tf.constant(session.schedule.rate(passed) * position.standing.rate_factor, tf.float32)


def _wishes(session: Session, pace: _Pace) -> tf.Tensor:
    minutes = session.job.arguments.checkpoint_minutes
    save_due = minutes and session.world.is_root and time.monotonic() - pace.saved > minutes * 60
    wanted = bool(save_due) or session.notices.checkpoint_wanted()
    return tf.constant([float(session.stop.made), float(wanted)], tf.float32)


def _check_finite(news: Sums, session: Session) -> None:
    if news[_BAD] == 0:
        return
    where = f"rank {int(news[_BAD_RANKS])}" if news[_BAD] == 1 else f"{int(news[_BAD])} ranks"
    raise NonFiniteLossError(
        f"The loss of step {session.position.step} (epoch {session.position.epoch + 1}) on {where} should be "
        f"a finite number, was NaN or infinite. "
        f"Try a lower learning rate or a longer warm-up, and look for damaged records. "
        f"The last checkpoint is from before it."
    )


def _must_save(session: Session, news: Sums) -> bool:
    every = session.job.arguments.checkpoint_steps
    due = every and session.position.step % every == 0
    at_the_end = session.position.step_of_epoch == session.job.training.steps
    return bool(news[_STOP]) or (bool(due or news[_SAVE]) and not at_the_end)


def save_within_epoch(session: Session, sums: Sums) -> Sums:
    """Save a checkpoint in the middle of an epoch; return the sums to go on with."""
    session.watch.enter("checkpoint", session.position.step)
    total = collective.summed(sums, "checkpoint")
    session.position = replace(session.position, sums=tuple(total.tolist()))
    save(session)
    session.notices.checkpoint_saved()
    return total if session.world.is_root else session.layout.no_sums()


def _interrupted(session: Session) -> str:
    position = session.position
    return (
        f"The training was asked to stop and did so after step {position.step} (epoch {position.epoch + 1}, step "
        f"{position.step_of_epoch} of {session.job.training.steps}). A checkpoint is saved in "
        f"{session.job.checkpoints.folder}: the next attempt goes on from there."
    )


def _tell_progress(session: Session, sums: Sums, pace: _Pace) -> None:
    if session.listeners and time.monotonic() - pace.told > PROGRESS_INTERVAL_S:
        pace.told = time.monotonic()
        for listener in session.listeners:
            listener.within_epoch(session.position, session.layout.averages(sums), session.times.images_per_s)
