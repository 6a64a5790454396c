"""MLflow runs in files: one that the training creates, or the one that Azure ML has started."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from shared.job_arguments import JobArguments
from training_job.checkpoints.position import Position
from training_job.reporting.listeners import listeners_for
from training_job.reporting.mlflow_log import EXPERIMENT, MlflowLog


@pytest.fixture(autouse=True)
def files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Configure MLflow to write files, without a server."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.delenv("MLFLOW_RUN_ID", raising=False)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")


def trained(folder: Path) -> None:
    """Log what a training of one epoch logs."""
    report = folder / "report"
    report.mkdir()
    (report / "training_report.json").write_text("{}")
    arguments = JobArguments(manifest="", data="", report="", model="", checkpoints="", optimizer="lars")
    log = MlflowLog(folder / "own", arguments)
    log.within_epoch(Position(step=3), {"loss": 2.0}, 100.0)
    log.epoch_ended(Position(step=22, epochs=({"epoch": 1.0, "val_accuracy": 0.5},)))
    log.ended(report)
    log.close()


def test_without_a_server_a_run_of_our_own_is_begun_and_ended(tmp_path: Path) -> None:
    """The run has parameters, metrics by step, and the report."""
    trained(tmp_path)
    client = MlflowClient(tracking_uri=(tmp_path / "own").as_uri())
    experiment = client.get_experiment_by_name(EXPERIMENT)
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert ("FINISHED", "lars") == (run.info.status, run.data.params["optimizer"])
    assert {"running_loss": 2.0, "running_images_per_s": 100.0, "epoch": 1.0, "val_accuracy": 0.5} == run.data.metrics
    assert [22] == [metric.step for metric in client.get_metric_history(run.info.run_id, "val_accuracy")]
    assert ["training_report.json"] == [artifact.path for artifact in client.list_artifacts(run.info.run_id)]


@pytest.mark.parametrize("fails", ["__init__", "log_batch", "log_artifact"])
def test_a_failure_of_mlflow_is_printed_once_and_ends_no_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fails: str
) -> None:
    """This holds at the start, within the training, and after the report is written."""

    def fail(*_: object, **__: object) -> None:
        raise MlflowException("no answer\nfrom the server")

    monkeypatch.setattr(MlflowClient, fails, fail)
    (tmp_path / "training_report.json").write_text("{}")
    arguments = JobArguments(
        manifest="", data="", report=str(tmp_path), model="", checkpoints="", mlflow=True, tensorboard=False
    )
    listeners = listeners_for(arguments)
    for listener in listeners[1:]:
        listener.within_epoch(Position(step=3), {"loss": 2.0}, 100.0)
        listener.epoch_ended(Position(step=22, epochs=({"epoch": 1.0, "val_accuracy": 0.5},)))
        listener.ended(tmp_path)
        listener.close()
    assert 2 == len(listeners)
    assert ["MLflow fails and is not used any more: MlflowException: no answer\\nfrom the server"] == (
        capsys.readouterr().err.splitlines()
    )


def test_azure_mls_run_is_written_to_and_left_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Azure ML itself ends its run, and nothing is written anywhere else."""
    server = (tmp_path / "server").as_uri()
    client = MlflowClient(tracking_uri=server)
    run_id = client.create_run(client.create_experiment("azure")).info.run_id
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    monkeypatch.setenv("MLFLOW_RUN_ID", run_id)
    trained(tmp_path)
    run = client.get_run(run_id)
    assert ("RUNNING", 0.5) == (run.info.status, run.data.metrics["val_accuracy"])
    assert not (tmp_path / "own").exists()
