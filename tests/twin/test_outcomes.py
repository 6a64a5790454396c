"""How runs end (failures, gates, further attempts, superseded and canceled runs), and what is notified."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from azure.storage.blob import BlobServiceClient

from cli.demo.following import TOPIC, WEBHOOK
from cli.deploy.assets import collect_code, commit_of
from local_azure.processes import wait_until
from tests.support.processes import REPOSITORY
from tests.support.terminal import landfall
from tests.support.twin import WITHIN_S, TwinUnderTest
from tests.twin.shards import shard, whole_version

pytestmark = pytest.mark.twin


def test_a_training_script_that_exits_with_1_is_a_failed_run(twin: TwinUnderTest) -> None:
    """The notification contains the end of the log; no model is registered."""
    twin.upload("broken/v1", whole_version())
    run = twin.await_settled("broken/v1")
    twin.await_quiet()
    [content] = [e["event"]["data"] for e in twin.client.received() if e["event"]["subject"] == run["run_id"]]
    assert ("failed", True, [], [(TOPIC, "failed"), (WEBHOOK, "failed")]) == (
        run["state"],
        "there is no column called colour" in content["log_tail"],
        twin.models(run["run_id"]),
        sorted(twin.notifications(run["run_id"])),
    )


def test_a_gate_that_is_not_met_registers_nothing(twin: TwinUnderTest) -> None:
    """The run and the notifications state the required and the reached metric."""
    twin.upload("weak/v1", whole_version())
    run = twin.await_settled("weak/v1")
    twin.await_quiet()
    assert ("not_registered", True, [], [(TOPIC, "not_registered"), (WEBHOOK, "not_registered")]) == (
        run["state"],
        all(word in run["reason"] for word in ("val_accuracy", "0.95", "0.5")),
        twin.models(run["run_id"]),
        sorted(twin.notifications(run["run_id"])),
    )


def test_a_registered_run_says_what_it_ran_on_and_reached(twin: TwinUnderTest) -> None:
    """The record has the nodes, ranks and metrics, and the model's name and version."""
    twin.upload("steady/recorded", whole_version())
    run = twin.await_settled("steady/recorded")
    assert (2, 2, "steady-model", {"val_accuracy": 0.99}, True) == (
        run["num_nodes"],
        run["world_size"],
        run["model_name"],
        run["metrics"],
        bool(run["model_version"]),
    )


def test_the_passport_of_a_registered_model_agrees_until_a_byte_changes(
    twin: TwinUnderTest, capsys: pytest.CaptureFixture[str]
) -> None:
    """The passport matches Azure ML and storage until a byte changes; `landfall verify` then names the difference."""
    twin.upload("steady/passport", whole_version())
    run = twin.await_settled("steady/passport")
    places = twin.twin.places
    model = f"{run['model_name']}:{run['model_version']}"
    asked = ("verify", model, "--url", places.functions_url, "--key", places.secrets.function_key, "--json")
    code, out, error = landfall(capsys, *asked)
    results = {check["name"]: check["result"] for check in json.loads(out)["checks"]}
    assert (0, "") == (code, error), out
    named = ("digest over itself", "tag of the model", "shards in storage", "run on record", "environment and code")
    assert {"ok"} == {results[name] for name in named}
    passport = twin.api.get(f"/api/models/{run['model_name']}/versions/{run['model_version']}/passport")
    commit, image = passport["code"]["commit"], passport["environment"]["image_digest"]
    published = collect_code(REPOSITORY, twin.twin.options.pipelines)
    assert (commit_of(REPOSITORY, published), "sha256:") == (commit, image[:7])
    with BlobServiceClient.from_connection_string(places.host_connection) as host:
        report = host.get_blob_client("runs", passport["evidence"]["report"]["path"])
        report.upload_blob(report.download_blob().readall() + b" ", overwrite=True)
    code, out, _ = landfall(capsys, *asked)
    differing = [check["name"] for check in json.loads(out)["checks"] if check["result"] == "differs"]
    assert (1, ["evidence files"]) == (code, differing)


def await_state(twin: TwinUnderTest, dataset_version: str, *states: str) -> dict[str, Any]:
    """Sweep as the timer does until a version's newest run is in one of some states; return the run.

    A sweep reads what all tests have left in the twin, so it is fired at every fourth look only.
    """
    looks = itertools.count()

    def arrived() -> dict[str, Any] | None:
        if next(looks) % 4 == 1:
            twin.client.fire("reconcile")
        runs = twin.runs(dataset_version)
        return runs[0] if runs and runs[0]["state"] in states else None

    return wait_until(arrived, what=f"the run of {dataset_version} to be {states}", timeout_s=WITHIN_S, poll_s=0.2)


def test_an_interrupted_training_goes_on_as_the_next_attempt(twin: TwinUnderTest) -> None:
    """There are two jobs, one model, and one notification for each recipient."""
    twin.upload("hiccup/v1", whole_version())
    last = await_state(twin, "hiccup/v1", "registered")
    twin.await_quiet()
    first = twin.api.run(f"{last['logical_run']}-a1")
    assert (2, "failed", "preempted", "resume", last["run_id"]) == (
        last["attempt"],
        first["state"],
        first["failure_class"],
        first["remedy"],
        first["next_run_id"],
    )
    assert ([], [(TOPIC, "registered"), (WEBHOOK, "registered")]) == (
        twin.notifications(first["run_id"]),
        sorted(twin.notifications(last["run_id"])),
    )


def test_a_change_cancels_the_running_job_and_trains_on_the_new_content(twin: TwinUnderTest) -> None:
    """The old run is canceled with its reason, the new one starts by itself, and each leads to one notification."""
    shards = whole_version()
    twin.upload("restless/v1", shards)
    first = await_state(twin, "restless/v1", "running")
    name = next(iter(shards))
    twin.upload("restless/v1", {name: shard(first_label=7)})
    second = await_state(twin, "restless/v1", "registered")
    twin.await_quiet()
    old = twin.api.run(first["run_id"])
    assert ("canceled", "superseded by generation 2", 2) == (old["state"], old["reason"], second["generation"])
    received = [sorted(twin.notifications(run["run_id"])) for run in (old, second)]
    assert [
        [(TOPIC, "canceled"), (WEBHOOK, "canceled")],
        [(TOPIC, "registered"), (WEBHOOK, "registered")],
    ] == received


def test_a_run_that_a_person_cancels_ends_and_what_waits_for_it_does_not_start(twin: TwinUnderTest) -> None:
    """One run trains and one is queued with `latest`; after the cancellation, neither runs."""
    twin.upload("endless/canceled", whole_version())
    going = await_state(twin, "endless/canceled", "running")
    twin.upload("endless/queued", whole_version())
    wait_until(
        lambda: twin.runs("endless/queued"), what="the second run to be queued", timeout_s=WITHIN_S, poll_s=0.2
    )
    twin.api.cancel(going["run_id"])
    ended = await_state(twin, "endless/canceled", "canceled")
    queued = await_state(twin, "endless/queued", "suppressed")
    assert (
        "canceled by a person over the API",
        f"a person canceled the run that it waited for: {going['run_id']}",
    ) == (
        ended["reason"],
        queued["reason"],
    )
