"""Metrics for TensorBoard, in a folder beside the report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import tensorflow as tf

from training_job.checkpoints.position import Position


class TensorBoard:
    """One scalar for each metric and epoch, by the optimizer's step."""

    def __init__(self, folder: Path) -> None:
        self._writer = tf.summary.create_file_writer(str(folder))

    def within_epoch(self, position: Position, metrics: Mapping[str, float], images_per_s: float | None) -> None:
        """Write the running throughput and loss."""
        self._write({"running/loss": metrics["loss"], "running/images_per_s": images_per_s or 0.0}, position.step)

    def epoch_ended(self, position: Position) -> None:
        """Write the epoch's record."""
        self._write({f"epoch/{name}": value for name, value in position.epochs[-1].items()}, position.step)

    def ended(self, report_folder: Path) -> None:
        """Close the file."""
        del report_folder
        self._writer.close()

    def _write(self, values: Mapping[str, float], step: int) -> None:
        with self._writer.as_default(step=step):
            for name, value in values.items():
                tf.summary.scalar(name, value)
        self._writer.flush()
