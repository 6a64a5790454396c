"""Writing a checkpoint: all ranks take part, the root writes."""

from __future__ import annotations

from training_job import collective
from training_job.checkpoints.store import CheckpointStore
from training_job.session import Session
from training_job.variables import all_variables, statistics, to_arrays


def save(session: Session) -> None:
    """Save where the training stands; every rank has to come here."""
    collective.average_variables(statistics(session.model))
    write(session, session.job.checkpoints)


def write(session: Session, store: CheckpointStore) -> None:
    """Write a checkpoint on the root."""
    if session.world.is_root:
        store.save(session.position, to_arrays(all_variables(session.model, session.optimizer)))
