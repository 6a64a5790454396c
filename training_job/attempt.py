"""One attempt on one rank, from meeting the others to the report."""

from __future__ import annotations

from training_job.ending import finish
from training_job.job import Job
from training_job.opening import open_session
from training_job.survival.stop_request import StopRequest
from training_job.training_loop import train


def run(job: Job, stop: StopRequest) -> None:
    """Train on this rank, together with the others. Raises TrainingError."""
    session = open_session(job, stop)
    train(session)
    finish(session)
