"""How runs end when they do not end well: said to people with the reason, and nothing is registered."""

from __future__ import annotations

import pytest

from cli.demo.observation import TOPIC, WEBHOOK
from tests.integration.twin.shards import whole_version
from tests.support.twin import TwinUnderTest

pytestmark = pytest.mark.twin


def test_a_training_script_that_exits_with_1_is_a_failed_run(twin: TwinUnderTest) -> None:
    """The notification holds the end of the log; there is no model."""
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
    """The run says which metric was required and what was seen; so do the notifications."""
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
    """Nodes, ranks, metrics and the model's name and version are on record."""
    twin.upload("steady/recorded", whole_version())
    run = twin.await_settled("steady/recorded")
    assert (2, 2, "steady-model", {"val_accuracy": 0.99}, True) == (
        run["num_nodes"],
        run["world_size"],
        run["model_name"],
        run["metrics"],
        bool(run["model_version"]),
    )
