"""One attempt on one rank, from meeting the others to the report."""

from __future__ import annotations

from training_job.data.damage import find_damage
from training_job.ending import finish
from training_job.errors import DataError, UnreadableDataError
from training_job.job import Job
from training_job.opening import open_session
from training_job.session import Session
from training_job.survival.roll_call import DAMAGE_PLACE
from training_job.survival.stop_request import StopRequest
from training_job.training_loop import train


def run(job: Job, stop: StopRequest) -> None:
    """Train on this rank, together with the others. Raises TrainingError."""
    session = open_session(job, stop)
    try:
        train(session)
        finish(session)
    except UnreadableDataError as error:
        raise DataError(f"{error} {_damage(session)}") from error


def _damage(session: Session) -> str:
    session.watch.enter(DAMAGE_PLACE, session.position.step)
    return find_damage(session.inputs.suspects(session.position.epoch), session.job.manifest.data_format)
