"""Jobs whose launcher or nodes provide less than requested: how they are stopped, and which notifications follow."""

from __future__ import annotations

import pytest

from cli.demo.following import TOPIC, WEBHOOK
from cli.remote.runs import describe_run
from tests.support.twin import TwinUnderTest
from tests.twin.shards import whole_version
from tests.twin.test_outcomes import await_state

pytestmark = pytest.mark.twin


def text_about(twin: TwinUnderTest, run_id: str) -> str:
    """Return the topic's notification about a run."""
    [content] = [e["event"]["data"] for e in twin.client.received() if e["event"]["subject"] == run_id]
    return str(content["text"])


def test_a_script_whose_ranks_are_missing_fails_with_the_counts(twin: TwinUnderTest) -> None:
    """One rank of two starts: the run fails without another attempt or a model, and the message says what to do."""
    twin.client.fail_jobs("one_rank", job="steady-missing")
    twin.upload("steady/missing", whole_version())
    run = await_state(twin, "steady/missing", "failed")
    twin.await_quiet()
    run = twin.api.run(run["run_id"])
    assert (1, "missing_resources", "stop") == (run["attempt"], run["failure_class"], run["remedy"])
    counts = "Expected 2 ranks on 2 nodes; the launcher started 1, 1 of them on this node."
    lines = "\n".join(describe_run(run))
    assert (True, True) == (counts in text_about(twin, run["run_id"]), counts in lines)
    assert "check the cluster and its image" in text_about(twin, run["run_id"])
    assert ([], [(TOPIC, "failed"), (WEBHOOK, "failed")]) == (
        twin.models(run["run_id"]),
        sorted(twin.notifications(run["run_id"])),
    )


def test_ranks_that_were_all_on_one_node_train_on_two_the_next_time(twin: TwinUnderTest) -> None:
    """After one fault there is one more attempt, as the pipeline allows, and one model."""
    twin.client.fail_jobs("one_node", job="lonely-crowded")
    twin.upload("lonely/crowded", whole_version())
    run = await_state(twin, "lonely/crowded", "registered")
    first = twin.api.run(f"{run['logical_run']}-a1")
    assert (2, "missing_resources", run["run_id"]) == (run["attempt"], first["failure_class"], first["next_run_id"])
    assert "the launcher started 2, 2 of them on this node" in first["reason"]


@pytest.mark.slow
def test_a_training_whose_ranks_see_no_gpu_does_not_train_on_processors(twin: TwinUnderTest) -> None:
    """The VM size has GPUs but TensorFlow finds none; the root counts them for all ranks."""
    twin.client.fail_jobs("no_gpu", job="scarce-v1")
    twin.upload("scarce/v1", whole_version())
    run = twin.await_settled("scarce/v1")
    assert ("failed", "missing_resources") == (run["state"], run["failure_class"])
    assert "Expected a GPU for each of 2 ranks; TensorFlow has one on 0." in text_about(twin, run["run_id"])
    assert "TensorFlow finds no GPU." in run["log_tail"]


def test_a_job_whose_outputs_fail_is_resumed_by_another_attempt(twin: TwinUnderTest) -> None:
    """The first attempt ends with an error of the mount, not of its script; the second one succeeds."""
    twin.client.fail_jobs("no_outputs", job="lonely-unmounted")
    twin.upload("lonely/unmounted", whole_version())
    run = await_state(twin, "lonely/unmounted", "registered")
    first = twin.api.run(f"{run['logical_run']}-a1")
    assert (2, "communication", run["run_id"]) == (run["attempt"], first["failure_class"], first["next_run_id"])
    assert "OSError: [Errno 5] Input/output error" in first["log_tail"]
