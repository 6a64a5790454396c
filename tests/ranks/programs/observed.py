"""A training in which every rank records, after each epoch, NOTES_FOLDER/observed-<rank>.json and .npz.

The JSON has the labels of each step's batch (``labels``), the shape of every tensor that the step gave to Horovod to
average (``averaged``), and the shapes of the trained variables (``trained``). The other file has the weights after
each epoch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import horovod.tensorflow as hvd
import numpy as np

from tests.ranks.programs.changed import NOTES, before_each_step, train_changed
from training_job.checkpoints.position import Position
from training_job.session import Session

allreduce = hvd.allreduce


class Observer:
    """A listener on every rank."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._labels: list[list[int]] = []
        self._averaged: list[list[int]] = []
        self._weights: dict[str, Any] = {}

    def note_batch(self, batch: Any) -> None:
        """Record a batch's labels."""
        self._labels.append(batch[1].numpy().ravel().tolist())

    def allreduce(self, tensor: Any, *args: Any, **options: Any) -> Any:
        """Record what is averaged; called while the step is traced."""
        if options.get("op") == hvd.Average:
            self._averaged.append(list(tensor.shape))
        return allreduce(tensor, *args, **options)

    def within_epoch(self, position: Position, metrics: Mapping[str, float], images_per_s: float | None) -> None:
        """Nothing."""

    def epoch_ended(self, position: Position) -> None:
        """Write everything that was recorded so far."""
        model, rank = self._session.model, self._session.world.rank
        self._weights[str(position.epoch)] = np.concatenate([np.asarray(v).ravel() for v in model.weights])
        np.savez(NOTES / f"observed-{rank}.npz", **self._weights)
        notes = {
            "labels": self._labels,
            "averaged": self._averaged,
            "trained": [list(v.shape) for v in model.trainable_variables],
        }
        (NOTES / f"observed-{rank}.json").write_text(json.dumps(notes))

    def ended(self, report_folder: Path) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


def observe(session: Session) -> None:
    """Record all of this on every rank."""
    observer = Observer(session)
    hvd.allreduce = observer.allreduce
    before_each_step(session, observer.note_batch)
    session.listeners = (*session.listeners, observer)


if __name__ == "__main__":
    train_changed(observe)
