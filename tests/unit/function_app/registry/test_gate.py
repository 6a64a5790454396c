"""The gate: a model is registered only where the training report meets each requirement."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from function_app.domain.records import RunRecord
from function_app.domain.run_states import RunState
from function_app.notify.messages import MAX_REASON_CHARS
from function_app.runs.requests import request_run
from shared.training_report import MAX_REPORT_BYTES
from tests.support.world import VERSION, World, ended_run, pipeline


@pytest.mark.parametrize(
    ("metrics", "reason"),
    [
        ({"val_accuracy": 0.94}, "val_accuracy: expected at least 0.95, got 0.94"),
        ({"val_loss": 0.1}, "val_accuracy is not in the training report; it has val_loss"),
    ],
)
def test_a_gate_that_does_not_hold_registers_nothing_and_says_why(metrics: dict[str, float], reason: str) -> None:
    """The reason has the numbers that decided."""
    world, run = ended_run("Completed", **metrics)
    assert (RunState.NOT_REGISTERED, reason, metrics) == (run.state, run.reason, run.metrics)
    assert ({}, ["not_registered"]) == (world.models.registered, [n.outcome for n in world.topic.received])


@pytest.mark.parametrize(
    ("report", "reason"),
    [
        (None, "the job completed without a training report: digits/v1/"),
        (b"{", "/report/training_report.json: not a training report"),
        (b"x" * (MAX_REPORT_BYTES + 1), "has more than"),
    ],
)
def test_a_report_that_cannot_be_read_is_no_evidence(report: bytes | None, reason: str) -> None:
    """The run ends not registered; it does not stay completed for ever."""
    world = World()
    run = world.upload_version()
    world.write_report(run, {"val_accuracy": 1.0})
    (path,) = world.run_outputs.documents
    if report is None:
        del world.run_outputs.documents[path]
    else:
        world.run_outputs.documents[path] = report
    world.jobs.become(run.run_id, "Completed")
    found = world.follow(run)
    assert RunState.NOT_REGISTERED == found.state
    assert reason in (found.reason or "")


def test_a_report_on_other_data_is_no_evidence() -> None:
    """A model must lead back to the data that the run is for."""
    world = World()
    run = world.upload_version()
    world.write_report(run, {"val_accuracy": 1.0}, fingerprint="e" * 64)
    world.jobs.become(run.run_id, "Completed")
    assert f"expected data {run.fingerprint[:12]}, got eeeeeeeeeeee" in (world.follow(run).reason or "")


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"world_size": 1}, "expected 2 ranks, the report says 1"),
        ({"num_nodes": 1}, "expected 2 nodes, the report says 1"),
        ({"device": "cpu"}, "expected a GPU for each rank, the report says cpu"),
        ({"world_size": "9" * 1000}, f"expected 2 ranks, the report says {'9' * 50}"),
        ({"device": None}, "expected a GPU for each rank, the report says None"),
        (
            {"world_size": 1, "num_nodes": 1, "device": "cpu"},
            (
                "expected 2 ranks, the report says 1; expected 2 nodes, the report says 1; "
                "expected a GPU for each rank, the report says cpu"
            ),
        ),
    ],
)
def test_a_report_of_other_machines_than_were_paid_for_is_no_evidence(members: dict[str, Any], reason: str) -> None:
    """Its metrics do not matter; the data are not the cause, so the version can be requested again without force."""
    world = World()
    run = reported(world, **members)
    assert (RunState.NOT_REGISTERED, reason, "missing_resources") == (run.state, run.reason, run.failure_class)
    assert {} == world.models.registered
    again, is_new = request_run(VERSION, {}, trigger="http", services=world.services)
    assert (True, True) == (is_new, again.run_id != run.run_id)


def test_simulated_gpus_are_those_of_the_twin() -> None:
    """Only the emulator may declare simulated GPUs, not a pipeline or a job."""
    assert RunState.REGISTERED == reported(World(), device="simulated").state


def test_a_size_without_gpus_expects_none() -> None:
    """A processor is what was paid for."""
    world = World()
    world.change_machines(vm_size="Standard_D4s_v5", processes_per_node=1)
    assert RunState.REGISTERED == reported(world, device="cpu").state


def test_a_run_of_an_older_deployment_states_nothing_and_ends_as_before() -> None:
    """Its report knows neither the nodes of the twin nor the device."""
    world = World()
    run = world.upload_version()
    command = str(run.spec["command"]).partition(" --expected")[0]
    world.ledger.run_rows[run.run_id] = replace(run, spec={**run.spec, "command": command})
    world.write_report(run, {"val_accuracy": 1.0}, world_size=1, num_nodes=1, device=None)
    world.jobs.become(run.run_id, "Completed")
    assert RunState.REGISTERED == world.follow(run).state


@pytest.mark.parametrize(
    ("members", "state"),
    [
        ({"num_nodes": 1, "device": None}, RunState.REGISTERED),
        ({"device": "cpu"}, RunState.NOT_REGISTERED),
        ({"world_size": 1}, RunState.NOT_REGISTERED),
    ],
)
def test_a_users_script_must_report_its_ranks(members: dict[str, Any], state: RunState) -> None:
    """One that never initialised Horovod has one; nodes and GPUs were checked before it was started."""
    world = World()
    use_own_script(world)
    assert state == reported(world, **members).state


@pytest.mark.parametrize(
    ("report", "state", "reason"),
    [
        (b'{"val_accuracy": 0.96}', RunState.REGISTERED, "val_accuracy"),
        (b'{"val_accuracy": 0.94}', RunState.NOT_REGISTERED, "val_accuracy: expected at least 0.95, got 0.94"),
        (b'{"val_accuracy": "0.96"}', RunState.NOT_REGISTERED, "metric val_accuracy is '0.96'; it must be a finite"),
        (b"[0.96]", RunState.NOT_REGISTERED, "not a training report"),
    ],
)
def test_a_users_script_may_report_its_metrics_alone(report: bytes, state: RunState, reason: str) -> None:
    """Its data and machines are known without it."""
    world = World()
    use_own_script(world)
    run = world.upload_version()
    world.write_report(run, {"val_accuracy": 1.0})
    (path,) = world.run_outputs.documents
    world.run_outputs.documents[path] = report
    world.jobs.become(run.run_id, "Completed")
    found = world.follow(run)
    assert (state, True) == (found.state, reason in (found.reason or reason)), found.reason


@pytest.mark.parametrize(
    ("log", "state", "reason"),
    [
        ("val_accuracy=0.5\nepoch 2\nval_accuracy=0.96, val_loss=.1\n", RunState.REGISTERED, ""),
        ("val_accuracy=0.96\nval_accuracy=0.94\n", RunState.NOT_REGISTERED, "expected at least 0.95, got 0.94"),
        ("the val_accuracy=0.96\n", RunState.NOT_REGISTERED, "or print such a line"),
        (None, RunState.NOT_REGISTERED, 'write {"val_accuracy": 0.93} to the file that LANDFALL_REPORT names'),
    ],
)
def test_a_users_script_may_print_its_metrics(log: str | None, state: RunState, reason: str) -> None:
    """It need not write a report; the gate decides in the same way, and run and lineage name the source."""
    world = World()
    use_own_script(world)
    run = world.upload_version()
    world.jobs.logs |= {} if log is None else {run.run_id: log}
    world.jobs.logs[f"{run.run_id}/1"] = "val_accuracy=1.0\n"
    world.jobs.become(run.run_id, "Completed")
    found = world.follow(run)
    assert (state, True) == (found.state, reason in (found.reason or "")), found.reason
    if state is RunState.REGISTERED:
        (model,) = world.models.registered.values()
        assert ("the log of rank 0", {"val_accuracy": 0.96, "val_loss": 0.1}) == (
            model.tags["landfall.metrics_from"],
            found.metrics,
        )
        history = [entry for entry in world.ledger.history(run.run_id) if entry.action == "run_registered"]
        assert "the log of rank 0" == history[0].details["metrics_from"]


@pytest.mark.parametrize(
    ("log", "logged", "state", "came_from"),
    [
        ("", {"val_accuracy": 0.96}, RunState.REGISTERED, "the MLflow run"),
        ("", {"val_accuracy": 0.94}, RunState.NOT_REGISTERED, "the MLflow run"),
        ("val_accuracy=0.94\n", {"val_accuracy": 0.96}, RunState.REGISTERED, "the MLflow run"),
        ("val_accuracy=0.96\n", {"loss": 0.1}, RunState.REGISTERED, "the MLflow run and the log of rank 0"),
        ("val_accuracy=0.96\n", {"loss": float("nan")}, RunState.REGISTERED, "the log of rank 0"),
    ],
)
def test_a_users_script_may_log_its_metrics_to_mlflow(
    log: str, logged: dict[str, float], state: RunState, came_from: str
) -> None:
    """They count before what it prints, which counts for the metrics that are not in the MLflow run."""
    world = World()
    use_own_script(world)
    run = world.upload_version()
    world.jobs.logs[run.run_id] = log
    world.jobs.metrics[run.run_id] = logged
    world.jobs.become(run.run_id, "Completed")
    assert state == world.follow(run).state
    (settled,) = [entry for entry in world.ledger.history(run.run_id) if entry.action == f"run_{state}"]
    assert came_from == settled.details["metrics_from"]


def test_a_file_counts_before_the_mlflow_run() -> None:
    """It is what the script wrote for Landfall."""
    world = World()
    use_own_script(world)
    run = world.upload_version()
    world.write_report(run, {"val_accuracy": 0.94})
    world.jobs.metrics[run.run_id] = {"val_accuracy": 1.0}
    world.jobs.become(run.run_id, "Completed")
    assert RunState.NOT_REGISTERED == world.follow(run).state


@pytest.mark.parametrize("log", ["", "val_accuracy=0.96\n"])
def test_an_mlflow_run_that_cannot_be_read_is_named_where_nothing_else_reports(log: str) -> None:
    """Most scripts do not use it, so what they print still counts."""
    world = World()
    use_own_script(world)
    run = world.upload_version()
    world.jobs.logs[run.run_id] = log
    world.jobs.metrics_refusal = "give it the role AzureML Data Scientist"
    world.jobs.become(run.run_id, "Completed")
    found = world.follow(run)
    assert (RunState.REGISTERED if log else RunState.NOT_REGISTERED) == found.state
    assert log or "(give it the role AzureML Data Scientist)" in (found.reason or "")


def test_an_mlflow_run_is_no_report_of_landfalls_own_training() -> None:
    """It always writes one, and logs its metrics there besides."""
    world = World()
    run = world.upload_version()
    world.jobs.metrics[run.run_id] = {"val_accuracy": 1.0}
    world.jobs.become(run.run_id, "Completed")
    assert RunState.NOT_REGISTERED == world.follow(run).state


def test_printed_metrics_are_no_report_of_landfalls_own_training() -> None:
    """It always writes one."""
    world = World()
    run = world.upload_version()
    world.jobs.logs[run.run_id] = "val_accuracy=1.0\n"
    world.jobs.become(run.run_id, "Completed")
    assert RunState.NOT_REGISTERED == world.follow(run).state


def test_landfalls_own_training_reports_more_than_metrics() -> None:
    """It also reports which data it read."""
    world = World()
    run = world.upload_version()
    world.write_report(run, {"val_accuracy": 1.0})
    (path,) = world.run_outputs.documents
    world.run_outputs.documents[path] = b'{"val_accuracy": 1.0}'
    world.jobs.become(run.run_id, "Completed")
    assert RunState.NOT_REGISTERED == world.follow(run).state


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"register_": None}, "pipeline digits registers no model"), (None, "the dataset no longer has a pipeline")],
)
def test_without_a_gate_nothing_is_registered(changes: dict[str, Any] | None, reason: str) -> None:
    """The pipeline does not say what a good model is."""
    world = World()
    run = world.upload_version()
    world.end_job(run)
    if changes is None:
        world.services = replace(world.services, pipelines={})
    else:
        world.change_pipeline(**changes)
    found = world.follow(run)
    assert RunState.NOT_REGISTERED == found.state
    assert (found.reason or "").startswith(reason)


def test_a_training_that_did_not_check_the_contents_is_no_evidence() -> None:
    """The shards may have been replaced while the run was queued."""
    world = World()
    found = reported(world, contents_checked=False)
    assert RunState.NOT_REGISTERED == found.state
    assert "did not compare the shards with the accepted content" in (found.reason or "")


def test_a_users_script_need_not_check_the_contents() -> None:
    """The app's own comparison of the shards is sufficient for it."""
    world = World()
    use_own_script(world)
    assert RunState.REGISTERED == reported(world, contents_checked=False).state


def test_a_report_with_a_long_text_is_refused_and_its_run_ends() -> None:
    """A script may write any text as a metric; the notification has the beginning of the reason, which quotes it."""
    world = World()
    use_own_script(world)
    run = world.upload_version()
    world.write_report(run, {"val_accuracy": "ж" * 12_000})  # type: ignore[dict-item]
    world.jobs.become(run.run_id, "Completed")
    ended = world.follow(run)
    reasons = [sent.content["reason"] for sent in world.ledger.notifications(run.run_id)]
    assert (RunState.NOT_REGISTERED, False) == (ended.state, ended.notified_at is None)
    assert ended.reason is not None
    assert [f"{ended.reason[: MAX_REASON_CHARS - 1]}…"] * 2 == reasons


def use_own_script(world: World) -> None:
    world.change_pipeline(train=pipeline().train.model_copy(update={"script": "scripts/mine.py"}))
    world.services = replace(world.services, read_script=lambda _: b"import horovod.tensorflow as hvd\nhvd.init()\n")


def reported(world: World, **members: Any) -> RunRecord:
    run = world.upload_version()
    world.write_report(run, {"val_accuracy": 1.0}, **members)
    world.jobs.become(run.run_id, "Completed")
    return world.follow(run)
