"""Reports of the root while a training runs: progress lines, TensorBoard, MLflow."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import tensorflow as tf

from shared.job_arguments import JobArguments
from shared.output_files import put_optional
from shared.progress import Progress
from training_job.checkpoints.position import Position


class Listener(Protocol):
    """Called as the training proceeds."""

    def within_epoch(self, position: Position, metrics: Mapping[str, float], images_per_s: float | None) -> None:
        """Report the running epoch; the metrics are the root's own so far."""
        ...

    def epoch_ended(self, position: Position) -> None:
        """Report an epoch; the position's last record has its metrics."""
        ...

    def ended(self, report_folder: Path) -> None:
        """Finish; the report is written."""
        ...

    def close(self) -> None:
        """Write the remaining data to the outputs; called once, also after a failure."""
        ...


def listeners_for(arguments: JobArguments) -> tuple[Listener, ...]:
    """Return the root's listeners."""
    found: list[Listener] = [ProgressLines(arguments.epochs)]
    report = Path(arguments.report)
    if arguments.tensorboard:
        found.append(TensorBoard(report / "tensorboard"))
    if arguments.mlflow or os.environ.get("MLFLOW_TRACKING_URI"):
        # Imported here because it takes a second, and most trainings on this machine do without.
        from training_job.reporting.mlflow_log import MlflowLog

        found.append(MlflowLog(report / "mlflow", arguments))
    return tuple(found)


class ProgressLines:
    """Prints the lines that the submitter follows."""

    def __init__(self, epochs: int) -> None:
        self._epochs = epochs

    def within_epoch(self, position: Position, metrics: Mapping[str, float], images_per_s: float | None) -> None:
        """Print the state of the running epoch."""
        self._print(position, metrics, images_per_s)

    def epoch_ended(self, position: Position) -> None:
        """Print the epoch's metrics."""
        record = position.epochs[-1]
        self._print(position, record, record["images_per_s"])

    def ended(self, report_folder: Path) -> None:
        """Print where the report is."""
        print(f"training succeeded, the report is in {report_folder}", flush=True)

    def close(self) -> None:
        """Do nothing."""

    def _print(self, position: Position, metrics: Mapping[str, float], images_per_s: float | None) -> None:
        progress = Progress(
            epoch=position.epoch,
            epochs=self._epochs,
            step=position.step,
            loss=metrics["loss"],
            accuracy=metrics["accuracy"],
            val_loss=metrics.get("val_loss"),
            val_accuracy=metrics.get("val_accuracy"),
            images_per_s=images_per_s,
        )
        print(progress.to_line(), flush=True)


class TensorBoard:
    """Writes scalars by the optimizer's step: a local file for each epoch, copied to the outputs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._local = tempfile.TemporaryDirectory(prefix="tensorboard-")
        self._writer: tf.summary.SummaryWriter | None = None

    def within_epoch(self, position: Position, metrics: Mapping[str, float], images_per_s: float | None) -> None:
        """Write the running throughput and loss."""
        self._write({"running/loss": metrics["loss"], "running/images_per_s": images_per_s or 0.0}, position.step)

    def epoch_ended(self, position: Position) -> None:
        """Write the epoch's record, and copy the epoch's file to the folder that TensorBoard reads."""
        self._write({f"epoch/{name}": value for name, value in position.epochs[-1].items()}, position.step)
        self._put()

    def ended(self, report_folder: Path) -> None:
        """Do nothing: every epoch has its file."""

    def close(self) -> None:
        """Copy the incomplete file of the last epoch."""
        self._put()
        self._local.cleanup()

    def _write(self, values: Mapping[str, float], step: int) -> None:
        if self._writer is None:
            self._writer = tf.summary.create_file_writer(self._local.name)
        with self._writer.as_default(step=step):
            for name, value in values.items():
                tf.summary.scalar(name, value)
        self._writer.flush()

    def _put(self) -> None:
        if self._writer is None:
            return
        self._writer.close()
        self._writer = None
        put_optional(Path(self._local.name), self._folder)
        for file in Path(self._local.name).iterdir():
            file.unlink()
