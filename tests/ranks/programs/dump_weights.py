"""A training in which every rank notes its own weights after each epoch: NOTES_FOLDER/rank-<r>-epoch-<e>.npy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tests.ranks.programs.changed import NOTES, train_changed
from training_job.checkpoints.position import Position
from training_job.session import Session


class WeightsFiles:
    """A listener, here on every rank."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def within_epoch(self, position: Position, metrics: Mapping[str, float], images_per_s: float | None) -> None:
        """Nothing."""

    def epoch_ended(self, position: Position) -> None:
        """Write the weights."""
        weights = [np.asarray(v).ravel() for v in self._session.model.weights]
        np.save(NOTES / f"rank-{self._session.world.rank}-epoch-{position.epoch}.npy", np.concatenate(weights))

    def ended(self, report_folder: Path) -> None:
        """Nothing."""


def listen(session: Session) -> None:
    """Hear of every epoch on every rank."""
    session.listeners = (*session.listeners, WeightsFiles(session))


if __name__ == "__main__":
    train_changed(listen)
