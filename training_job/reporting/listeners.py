"""Reports of the root while a training runs: progress lines, TensorBoard, MLflow."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

import tensorflow as tf

from shared.job_arguments import JobArguments
from shared.output_files import put_optional
from shared.progress import Progress
from shared.safe_text import shown
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
        found.append(OptionalListener("TensorBoard", lambda: TensorBoard(report / "tensorboard")))
    if arguments.mlflow or os.environ.get("MLFLOW_TRACKING_URI"):
        found.append(OptionalListener("MLflow", lambda: _mlflow_log(report / "mlflow", arguments)))
    return tuple(found)


def _mlflow_log(folder: Path, arguments: JobArguments) -> Listener:
    # Imported here because it takes a second, and most trainings on this machine do without.
    from training_job.reporting.mlflow_log import MlflowLog

    return MlflowLog(folder, arguments)


class OptionalListener:
    """Calls a listener whose failure must not end the training; the first failure is printed.

    Afterwards the listener is only closed: every call to a server that does not answer would delay all ranks.
    """

    def __init__(self, name: str, open_listener: Callable[[], Listener]) -> None:
        self._name = name
        self._failed = False
        self._listener: Listener | None = None
        with self._surviving():
            self._listener = open_listener()

    def within_epoch(self, position: Position, metrics: Mapping[str, float], images_per_s: float | None) -> None:
        """See Listener."""
        self._call(lambda listener: listener.within_epoch(position, metrics, images_per_s))

    def epoch_ended(self, position: Position) -> None:
        """See Listener."""
        self._call(lambda listener: listener.epoch_ended(position))

    def ended(self, report_folder: Path) -> None:
        """See Listener."""
        self._call(lambda listener: listener.ended(report_folder))

    def close(self) -> None:
        """See Listener."""
        if self._listener is not None:
            with self._surviving():
                self._listener.close()

    def _call(self, call: Callable[[Listener], None]) -> None:
        if self._listener is not None and not self._failed:
            with self._surviving():
                call(self._listener)

    @contextlib.contextmanager
    def _surviving(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - it may come from any library, and the training goes on
            if not self._failed:
                problem = f"{self._name} fails and is not used any more: {shown(f'{type(error).__name__}: {error}')}"
                print(problem, file=sys.stderr, flush=True)
            self._failed = True


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
