"""Events may be duplicated, late, reordered or lost: one run, one model version, one notification per outcome."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from cli.demo.following import TOPIC, WEBHOOK
from function_app.adapters.telemetry import METRICS_FILE
from local_azure.processes import wait_until
from tests.support.twin import WITHIN_S, TwinUnderTest
from tests.twin.shards import whole_version

pytestmark = pytest.mark.twin


def outcome(twin: TwinUnderTest, version: str) -> tuple[int, list[str], int, list[tuple[str, str]]]:
    """Wait until nothing is in progress; return a version's runs, their states, model versions and notifications."""
    run_id = twin.await_settled(version)["run_id"]
    twin.await_quiet()
    runs = twin.runs(version)
    return len(runs), [run["state"] for run in runs], len(twin.models(run_id)), sorted(twin.notifications(run_id))


ONCE = (1, ["registered"], 1, [(TOPIC, "registered"), (WEBHOOK, "registered")])
"""One run that registered one model version, with one notification for each recipient."""


def job_puts(twin: TwinUnderTest, version: str) -> list[str]:
    """Return the methods of all submissions of a version."""
    run_id = twin.runs(version)[0]["run_id"]
    return [
        c["method"] for c in twin.client.calls() if c["path"].endswith(f"/jobs/{run_id}") and c["method"] == "PUT"
    ]


def test_a_version_leads_to_one_run_with_one_call(twin: TwinUnderTest) -> None:
    """Without faults there are one run, one model version, one notification each, and one PUT for the submission."""
    twin.upload("steady/plain", whole_version())
    assert (ONCE, ["PUT"]) == (outcome(twin, "steady/plain"), job_puts(twin, "steady/plain"))


@pytest.mark.slow
def test_the_last_shard_uploaded_three_times_is_one_run(twin: TwinUnderTest) -> None:
    """Uploading the same bytes again changes nothing, neither during the run nor after its end."""
    shards = whole_version()
    last = list(shards.items())[-1]
    twin.upload("steady/thrice", [*shards.items(), last])
    twin.await_settled("steady/thrice")
    twin.upload("steady/thrice", [last])
    assert ONCE == outcome(twin, "steady/thrice")


@pytest.mark.usefixtures("no_faults_left")
def test_every_event_twice_and_in_reverse_is_one_run(twin: TwinUnderTest) -> None:
    """Upload events are delivered twice and in reverse order; so are the run's events, after it has ended."""
    shards = whole_version()
    twin.client.set_faults({"topic": "storage", "deliveries": 2, "order": "reverse", "hold_until": len(shards)})
    twin.client.set_faults({"topic": "azureml", "deliveries": 2, "order": "reverse"})
    twin.upload("steady/reverse", shards)
    run_id = wait_until(lambda: ended_run(twin, "steady/reverse"), what="the job to end", timeout_s=WITHIN_S)
    before = twin.api.run(run_id)["state"]
    twin.client.end_faults()
    assert ("submitted", ONCE) == (before, outcome(twin, "steady/reverse"))
    assert {"action": "event_suppressed"} in metrics(twin)["landfall.history"], "duplicates are counted"


@pytest.mark.usefixtures("no_faults_left")
def test_a_run_whose_events_are_all_lost_is_finished_by_the_timer(twin: TwinUnderTest) -> None:
    """Nothing happens without events, until the sweep finds that the job has ended."""
    twin.client.set_faults({"topic": "azureml", "drop": True})
    twin.upload("steady/dropped", whole_version())
    run_id = wait_until(lambda: ended_run(twin, "steady/dropped"), what="the job to end", timeout_s=WITHIN_S)
    twin.await_quiet()
    before = twin.api.run(run_id)["state"]
    twin.client.fire("reconcile")
    assert ("submitted", ONCE) == (before, outcome(twin, "steady/dropped"))
    measured = metrics(twin)
    by_dataset = [measured[f"landfall.{name}"] for name in ("submission.delay", "node_hours", "cost")]
    assert all({"dataset": "steady"} in each for each in by_dataset), measured
    assert {"state": "submitted"} in measured["landfall.run.age"], "the sweep saw a run that had not ended"
    assert {"queue": "shard-uploaded"} in measured["landfall.queue.age"]
    assert {"queue": "shard-uploaded", "result": "handled"} in measured["landfall.messages"]
    states = [f"run_{state}" for state in ("planned", "submitted", "completed", "registered")]
    assert all({"action": state} in measured["landfall.history"] for state in states), measured["landfall.history"]


@pytest.mark.usefixtures("no_faults_left")
def test_uploads_whose_events_are_all_lost_are_found_by_the_timer(twin: TwinUnderTest) -> None:
    """The sweep validates shards without an event, and they lead to a run."""
    twin.client.set_faults({"topic": "storage", "drop": True})
    twin.upload("steady/unannounced", whole_version())
    wait_until(
        lambda: len(announced(twin, "steady/unannounced")) == 3, what="the events to be dropped", timeout_s=WITHIN_S
    )
    twin.await_quiet()
    before = twin.version("steady/unannounced")
    twin.client.fire("reconcile")
    assert ({}, ONCE) == (before, outcome(twin, "steady/unannounced"))


def metrics(twin: TwinUnderTest) -> dict[str, list[dict[str, str]]]:
    """Return the dimensions of the values written so far for each metric, by its name."""
    found: dict[str, list[dict[str, str]]] = {}
    for line in (twin.twin.places.traces / METRICS_FILE).read_text(encoding="utf-8").splitlines():
        value = json.loads(line)
        if value["dimensions"] not in found.setdefault(value["name"], []):
            found[value["name"]].append(value["dimensions"])
    return found


def announced(twin: TwinUnderTest, version: str) -> Sequence[str]:
    """Return the subjects of the upload events of a version that Event Grid has received, delivered or not."""
    subjects = (entry["event"]["subject"] for entry in twin.client.received("storage"))
    return [subject for subject in subjects if f"/{version}/" in subject]


def ended_run(twin: TwinUnderTest, version: str) -> str | None:
    """Return the run's id once Azure ML has published the end of its job, even if that event is lost."""
    runs = twin.runs(version)
    ended = {
        entry["event"]["data"]["runId"]
        for entry in twin.client.received("azureml")
        if entry["event"]["eventType"].endswith(".RunCompleted")
    }
    return runs[0]["run_id"] if runs and runs[0]["run_id"] in ended else None
