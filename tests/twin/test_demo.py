"""`landfall demo` as a new user runs it: real digits, TensorFlow, two Horovod ranks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.demo.following import TOPIC, WEBHOOK
from cli.traces import TracedSpan, read_trace
from function_app.adapters.telemetry import METRICS_FILE
from local_azure.azure_ml.hosts import why_simulated
from local_azure.processes import wait_until
from tests.support.processes import child_environment, start_module
from tests.support.twin import require_twin_parts

pytestmark = [pytest.mark.twin, pytest.mark.distributed]

WITHIN_S = 850.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state of a demo that has completed."""
    require_twin_parts()
    folder = tmp_path_factory.mktemp("demo")
    demo = start_module(
        "cli", "demo", "--json", "--folder", str(folder), log=folder / "demo.log", environment=child_environment()
    )
    try:
        wait_until(lambda: demo.popen.poll() is not None, what="the demo to end", timeout_s=WITHIN_S, poll_s=0.5)
    finally:
        demo.stop()
    assert 0 == demo.popen.returncode, demo.output()
    return folder


def test_the_report_shows_two_ranks_and_a_registered_model(folder: Path) -> None:
    """Ten shards, two ranks, a registered model that meets its requirements, and one submission call."""
    report = json.loads((folder / "demo.json").read_text())
    assert ({"accepted": 10, "rejected": 0}, 2, 2, "registered", ["PUT"], True) == (
        report["shards"],
        report["run"]["num_nodes"],
        report["run"]["world_size"],
        report["run"]["state"],
        [call["method"] for call in report["azure_ml_calls"]],
        report["model"]["metrics"]["val_accuracy"] >= 0.95,
    )
    printed = [line for line in (folder / "demo.log").read_text().splitlines() if line.startswith("{")]
    assert [report] == [json.loads(line) for line in printed]


def test_the_report_says_where_each_rank_ran(folder: Path) -> None:
    """Two hosts where the machine supports them, otherwise one; the ledger records two nodes in both cases."""
    report, log = json.loads((folder / "demo.json").read_text()), (folder / "demo.log").read_text()
    simulated = why_simulated() is not None
    assert (simulated, 2, 1 if simulated else 2) == (
        report["nodes_are_simulated"],
        report["run"]["num_nodes"],
        len(set(report["hosts"])),
    )
    said = (
        "the nodes are simulated: all ranks ran on this machine"
        if simulated
        else "rank 0 on node-0, rank 1 on node-1"
    )
    assert said in log


def test_the_trace_is_one_tree_from_the_upload_to_the_notifications(folder: Path) -> None:
    """The tree connects the spans of all processes: ten shards, the job, the model and both recipients."""
    [file] = [path for path in (folder / "twin" / "traces").iterdir() if path.name != METRICS_FILE]
    version = json.loads(file.read_text().splitlines()[0])["attributes"]["landfall.dataset_version"]
    spans = {span.span_id: span for span in read_trace(file.parent, version)}

    def way(span: TracedSpan) -> list[str]:
        return [*([] if span.parent_id is None else way(spans[span.parent_id])), span.name]

    ways = [way(span) for span in spans.values()]
    notified = ["dataset version", "BlobCreated", "closed", "run", "run event", "notified"]
    assert ({"dataset version"}, 10, 2) == (
        {each[0] for each in ways},
        sum(each == ["dataset version", "BlobCreated"] for each in ways),
        sum(each == notified for each in ways),
    ), ways
    assert [*notified[:4], "submitted"] in ways
    assert [*notified[:5], "registered"] in ways
    assert [*notified[:4], "training"] in ways, "the job's environment led the trace into its report"


def test_the_metrics_of_the_demo_are_kept(folder: Path) -> None:
    """Every metric of a version is written, except cost, because no prices are stated, and those of sweeps."""
    text = (folder / "twin" / "traces" / METRICS_FILE).read_text(encoding="utf-8")
    found = {
        (value["name"], *value["dimensions"].values()): value["value"] for value in map(json.loads, text.splitlines())
    }
    assert found[("landfall.images_per_s", "digits")] > 0
    assert found[("landfall.node_hours", "digits")] > 0
    assert found[("landfall.submission.delay", "digits")] >= 0
    assert ("landfall.queue.age", "shard-uploaded") in found
    actions = ("shard_accepted", "run_submitted", "run_completed", "run_registered", "notification_sent")
    assert [] == [action for action in actions if ("landfall.history", action) not in found]


def test_gradients_went_through_horovod(folder: Path) -> None:
    """The training report, demo.json and the summary confirm it."""
    report = json.loads((folder / "demo.json").read_text())
    assert ("horovod", "simulated") == (report["gradients_averaged_by"], report["device"])
    assert "gradients        averaged over all ranks by horovod" in (folder / "demo.log").read_text()


def test_every_recipient_was_notified_once(folder: Path) -> None:
    """The topic and the webhook receive the outcome exactly once."""
    report = json.loads((folder / "demo.json").read_text())
    received = sorted((n["recipient"], n["outcome"]) for n in report["notifications"])
    assert [(TOPIC, "registered"), (WEBHOOK, "registered")] == received


def test_the_output_is_readable_in_a_log(folder: Path) -> None:
    """Each stage is one line, without the control characters that a terminal receives."""
    log = (folder / "demo.log").read_text()
    stages = ["10 of 10 accepted", "is complete: 1,797 records", "2 starting", "the job is running", "epoch 1 of"]
    stages += ["validation accuracy", "images/s", "the gate holds", "model registered: digits-cnn", "notified: "]
    assert ([], False) == ([stage for stage in stages if stage not in log], "\x1b" in log)


def test_the_same_report_lies_in_the_twins_own_folder(folder: Path) -> None:
    """Two demos that run at once keep separate reports."""
    assert (folder / "demo.json").read_text() == (folder / "twin" / "demo.json").read_text()
