"""Who hears of a training while it runs: on the root, one after the other."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from shared.job_arguments import JobArguments
from shared.progress import Progress
from training_job.checkpoints.position import Position


class Listener(Protocol):
    """Hears what has been achieved."""

    def within_epoch(self, position: Position, metrics: Mapping[str, float], images_per_s: float | None) -> None:
        """Hear of the running epoch; the metrics are the root's own so far."""
        ...

    def epoch_ended(self, position: Position) -> None:
        """Hear of an epoch; the position's last record has its metrics."""
        ...

    def ended(self, report_folder: Path) -> None:
        """Hear that the report is written."""
        ...


class ProgressLines:
    """Prints the lines that the submitter follows."""

    def __init__(self, epochs: int) -> None:
        self._epochs = epochs

    def within_epoch(self, position: Position, metrics: Mapping[str, float], images_per_s: float | None) -> None:
        """Print where the running epoch is."""
        self._print(position, metrics, images_per_s)

    def epoch_ended(self, position: Position) -> None:
        """Print what the epoch came to."""
        record = position.epochs[-1]
        self._print(position, record, record["images_per_s"])

    def ended(self, report_folder: Path) -> None:
        """Print where the report is."""
        print(f"training succeeded, the report is in {report_folder}", flush=True)

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


def listeners_for(arguments: JobArguments) -> tuple[Listener, ...]:
    """Return the root's listeners."""
    found: list[Listener] = [ProgressLines(arguments.epochs)]
    report = Path(arguments.report)
    if arguments.tensorboard:
        from training_job.reporting.tensorboard import TensorBoard

        found.append(TensorBoard(report / "tensorboard"))
    if arguments.mlflow or os.environ.get("MLFLOW_TRACKING_URI"):
        from training_job.reporting.mlflow_log import MlflowLog

        found.append(MlflowLog(report / "mlflow", arguments))
    return tuple(found)
