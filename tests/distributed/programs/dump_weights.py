"""A training in which every rank writes down its own weights after each epoch.

Started in place of ``-m training_job.train``; the folder is named by WEIGHTS_FOLDER.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from shared.job_arguments import JobArguments
from training_job import process_environment
from training_job.checkpoints.position import Position
from training_job.ending import finish
from training_job.job import prepare
from training_job.opening import open_session
from training_job.session import Session
from training_job.survival.stop_request import StopRequest
from training_job.training_loop import train


class WeightsFiles:
    """A listener, here on every rank."""

    def __init__(self, session: Session, folder: Path) -> None:
        self._session = session
        self._folder = folder

    def within_epoch(self, position: Position, metrics: Mapping[str, float], images_per_s: float | None) -> None:
        """Nothing."""

    def epoch_ended(self, position: Position) -> None:
        """Write the weights."""
        weights = [np.asarray(v).ravel() for v in self._session.model.weights]
        np.save(self._folder / f"rank-{self._session.world.rank}-epoch-{position.epoch}.npy", np.concatenate(weights))

    def ended(self, report_folder: Path) -> None:
        """Nothing."""


def main() -> None:
    """Train."""
    arguments = JobArguments.from_argv(sys.argv[1:])
    process_environment.set_for(arguments, Path(arguments.report))
    session = open_session(prepare(arguments, process_environment.launched_world_size()), StopRequest())
    folder = Path(os.environ["WEIGHTS_FOLDER"])
    folder.mkdir(parents=True, exist_ok=True)
    session.listeners = (*session.listeners, WeightsFiles(session, folder))
    train(session)
    finish(session)


if __name__ == "__main__":
    main()
