"""demo.json and the summary."""

from __future__ import annotations

from typing import Any

from cli.demo.report import demo_report, submission_calls, summary
from local_azure.twin.addresses import FUNCTION_APP_IDENTITY, OPERATOR_IDENTITY
from shared.training_report import TrainingReport

CLOSED, SUBMITTED = "2026-11-20T12:00:00Z", "2026-11-20T12:00:02+00:00"
CLOSED_S = 1795176000.0


def call(t: float, method: str, caller: str | None = FUNCTION_APP_IDENTITY) -> dict[str, Any]:
    """A call as the Azure ML emulator records it."""
    recorded = {"t": CLOSED_S + t, "method": method, "path": "/jobs/r", "query": {}, "status": 201, "user_agent": "x"}
    return {**recorded, "caller": caller}


def report() -> dict[str, Any]:
    """The report of a demo that went well."""
    split = {"accepted": 5, "rejected": []}
    return demo_report(
        version={
            "dataset": "digits",
            "version": "v1",
            "splits": {"train": split, "validation": {**split, "rejected": [{"shard": "x"}]}},
            "generation": {"fingerprint": "f" * 64, "closed_at": CLOSED},
        },
        run={
            "run_id": "r",
            "state": "registered",
            "attempt": 1,
            "num_nodes": 2,
            "world_size": 2,
            "submitted_at": SUBMITTED,
            "model_name": "m",
            "model_version": "7",
            "metrics": {"val_accuracy": 0.98765},
        },
        notifications=[{"recipient": "topic", "outcome": "registered"}],
        calls=[call(1.0, "PUT")],
        training=TrainingReport(
            run_id="r",
            fingerprint="f" * 64,
            metrics={},
            epochs=(),
            world_size=2,
            num_nodes=2,
            images_per_s=None,
            rank_plan={},
            seed=0,
            versions={},
            started_at="",
            ended_at="",
            details={"exchange": "horovod", "nodes_are_simulated": False, "hosts": ["node-0", "node-1"]},
            device="simulated",
        ),
        durations_s={"total": 61.4},
    )


def test_a_report_has_the_members_that_the_issue_names() -> None:
    """Names and values of demo.json."""
    expected = {
        "dataset_version": "digits/v1",
        "fingerprint": "f" * 64,
        "shards": {"accepted": 10, "rejected": 1},
        "run": {"run_id": "r", "state": "registered", "attempt": 1, "num_nodes": 2, "world_size": 2},
        "gradients_averaged_by": "horovod",
        "device": "simulated",
        "nodes_are_simulated": False,
        "hosts": ["node-0", "node-1"],
        "model": {"name": "m", "version": "7", "metrics": {"val_accuracy": 0.98765}},
        "notifications": [{"recipient": "topic", "outcome": "registered"}],
        "azure_ml_calls": [{"method": "PUT", "path": "/jobs/r", "query": {}, "status": 201}],
        "durations_s": {"total": 61.4},
    }
    assert expected == report()


def test_only_the_function_apps_calls_of_the_submission_count() -> None:
    """Calls before the closing, after the submission was recorded, and by others do not count."""
    calls = [call(-1, "GET"), call(0.5, "GET", OPERATOR_IDENTITY), call(1, "PUT"), call(1.5, "GET", None)]
    counted = submission_calls([*calls, call(3, "GET")], run_id="r", since=CLOSED, until=SUBMITTED)
    assert ["PUT"] == [each["method"] for each in counted]


def test_calls_about_the_run_before_it_do_not_count() -> None:
    """A run that waits for its turn is submitted with one call all the same."""
    before = [call(0.5, "GET") | {"path": path} for path in ("/jobs/r0", "/runs/r0/details", "")]
    counted = submission_calls([*before, call(1, "PUT")], run_id="r", since=CLOSED, until=SUBMITTED)
    assert ["PUT"] == [each["method"] for each in counted]


def test_without_a_submission_there_are_no_calls() -> None:
    """A version that never closed has none."""
    assert [] == submission_calls([call(1, "PUT")], run_id="r", since=None, until=None)


HOSTS = "each node was a host on this machine, with an address of its own: rank 0 on node-0, rank 1 on node-1"


def test_the_summary_is_short() -> None:
    """Eight lines: the data, the run, its machines, its gradients, its model, who was notified, what it cost."""
    assert [
        "dataset version  digits/v1, 10 shards accepted",
        "run              r: 2 nodes, 2 ranks, registered",
        f"machines         {HOSTS}; computed on: simulated GPUs",
        "gradients        averaged over all ranks by horovod",
        "model            m version 7 (val_accuracy 0.9877)",
        "notified         topic",
        "submission       1 call to Azure ML",
        "time             61 s",
    ] == list(summary(report()))


def test_simulated_nodes_are_called_so() -> None:
    """Their ranks shared a machine, whatever the run's number of nodes."""
    simulated = report() | {"nodes_are_simulated": True, "hosts": ["laptop", "laptop"]}
    machines = "machines         the nodes are simulated: all ranks ran on this machine; computed on: simulated GPUs"
    assert machines in list(summary(simulated))


def test_several_calls_are_calls() -> None:
    """The summary counts in English."""
    twice = report() | {"azure_ml_calls": [{}, {}]}
    assert "submission       2 calls to Azure ML" in list(summary(twice))
