"""Ten versions are completed while the first one is trained: all are trained in turn, or only the newest one."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest

from cli.demo.following import TOPIC, WEBHOOK
from local_azure.processes import wait_until
from tests.support.twin import WITHIN_S, TwinUnderTest
from tests.twin.own_pipelines import gate
from tests.twin.shards import whole_version

pytestmark = [pytest.mark.twin, pytest.mark.slow]

NUM_VERSIONS = 10


def upload_all(twin: TwinUnderTest, versions: list[str]) -> None:
    """Upload the shards of all versions in mixed order, so that they are complete at about the same time."""
    shards = [(version, name, content) for version in versions for name, content in whole_version().items()]
    random.Random(12).shuffle(shards)  # noqa: S311 (an order, not a secret)
    for version, name, content in shards:
        twin.upload(version, {name: content})


def await_runs(twin: TwinUnderTest, versions: list[str], states: list[str]) -> dict[str, dict[str, Any]]:
    """Wait until the runs of the versions have these states, in any distribution; return the versions by name."""

    def arrived() -> dict[str, dict[str, Any]] | None:
        found = {version: twin.version(version) for version in versions}
        seen = [run["state"] for one in found.values() for run in one.get("runs", [])]
        return found if sorted(seen) == sorted(states) else None

    return wait_until(arrived, what=f"runs that are {states}", timeout_s=WITHIN_S, poll_s=0.5)


@pytest.mark.parametrize("when_busy", ["queue", "latest"])
def test_ten_versions_at_once(twin: TwinUnderTest, when_busy: str) -> None:
    """One run at a time, in the order of completion and without a sweep; notifications are sent about the others."""
    first, *others = [f"{when_busy}/v{number}" for number in range(NUM_VERSIONS)]
    twin.upload(first, whole_version())
    active = wait_until(lambda: twin.runs(first), what="the first run", timeout_s=WITHIN_S, poll_s=0.2)[0]
    upload_all(twin, others)
    waiting = len(others) if when_busy == "queue" else 1
    found = await_runs(twin, others, ["planned"] * waiting + ["suppressed"] * (len(others) - waiting))
    in_order = sorted(others, key=lambda version: found[version]["generation"]["closed_at"])
    *dropped, last = in_order if when_busy == "latest" else in_order[-1:]
    num_before = f"{waiting - 1} versions before it" if waiting > 1 else "it is next"
    place = f"waits for run {active['run_id']}; {num_before}"  # its own handler may come later
    wait_until(lambda: twin.runs(last)[0]["waiting"] == place, what=f"{last} to say: {place}", timeout_s=WITHIN_S)

    gate(twin.twin.options.pipelines, when_busy).touch()
    trained = [version for version in (first, *in_order) if version not in dropped]
    runs = [twin.await_settled(version) for version in trained]
    twin.await_quiet()
    assert ["registered"] * len(trained) == [run["state"] for run in runs]
    assert all(one["ended_at"] <= two["submitted_at"] for one, two in pairwise(runs))
    for version in others:
        got = twin.notifications(version)
        expected = {(recipient, "version_dropped") for recipient in (TOPIC, WEBHOOK) if version in dropped}
        expected |= {(recipient, "version_waiting") for recipient in (TOPIC, WEBHOOK) if version not in dropped}
        assert (True, len(got)) == (expected <= set(got), len(set(got)))
