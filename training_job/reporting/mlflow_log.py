"""Logs the run's parameters and metrics to MLflow, from the root only.

Azure ML names its server in MLFLOW_TRACKING_URI and the run in MLFLOW_RUN_ID, and all ranks share that run: more than
one writer would mix their values. Without a server, MLflow writes files, which are copied to the outputs at the end.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Metric, Param

from shared.job_arguments import JobArguments
from shared.output_files import put_optional
from training_job.checkpoints.position import Position

EXPERIMENT = "landfall"
_MAX_VALUE_CHARS = 500
"""MLflow's own limit for a parameter."""
_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3", "MLFLOW_HTTP_REQUEST_TIMEOUT": "30"}
"""Settings of MLflow, if the job has none: all ranks wait for a call, and its own limits add up to 20 minutes."""


class MlflowLog:
    """Logs to one run."""

    def __init__(self, folder: Path, arguments: JobArguments) -> None:
        self._folder = folder
        self._local = Path(tempfile.mkdtemp(prefix="mlflow-"))
        for name, value in _PATIENCE.items():
            os.environ.setdefault(name, value)
        server = os.environ.get("MLFLOW_TRACKING_URI")
        if not server:
            # MLflow 3 writes files only if this variable allows it.
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        self._client = MlflowClient(tracking_uri=server or self._local.as_uri())
        self._run_id_of_azure_ml = os.environ.get("MLFLOW_RUN_ID")
        self._run_id = self._run_id_of_azure_ml or self._new_run()
        values = ((name, str(value)[:_MAX_VALUE_CHARS]) for name, value in asdict(arguments).items())
        self._client.log_batch(self._run_id, params=[Param(name, value) for name, value in values if value])

    def within_epoch(self, position: Position, metrics: Mapping[str, float], images_per_s: float | None) -> None:
        """Log the running throughput."""
        self._log({"running_loss": metrics["loss"], "running_images_per_s": images_per_s or 0.0}, position.step)

    def epoch_ended(self, position: Position) -> None:
        """Log the epoch's record."""
        self._log(position.epochs[-1], position.step)

    def ended(self, report_folder: Path) -> None:
        """Attach the report to the run, and end the run unless Azure ML ends it."""
        for path in sorted(report_folder.glob("*.*")):
            self._client.log_artifact(self._run_id, str(path))
        if not self._run_id_of_azure_ml:
            self._client.set_terminated(self._run_id)

    def close(self) -> None:
        """Copy the files to the outputs if there is no server; MLflow itself appends to them."""
        for file in self._local.rglob("meta.yaml"):  # it states the location of artifacts
            file.write_text(file.read_text().replace(self._local.as_uri(), self._folder.absolute().as_uri()))
        put_optional(self._local, self._folder)
        shutil.rmtree(self._local, ignore_errors=True)

    def _new_run(self) -> str:
        experiment = self._client.get_experiment_by_name(EXPERIMENT)
        experiment_id = experiment.experiment_id if experiment else self._client.create_experiment(EXPERIMENT)
        run_id: str = self._client.create_run(experiment_id).info.run_id
        return run_id

    def _log(self, values: Mapping[str, float], step: int) -> None:
        timestamp_ms = int(time.time() * 1000)
        self._client.log_batch(self._run_id, metrics=[Metric(n, v, timestamp_ms, step) for n, v in values.items()])
