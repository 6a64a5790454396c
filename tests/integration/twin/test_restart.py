"""What a twin keeps from one start to the next, and what two twins do not share."""

from __future__ import annotations

import json
import ssl
import stat
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from local_azure.processes import wait_until
from tests.integration.twin.shards import whole_version
from tests.support.twin import TwinUnderTest, options, twin_under_test

pytestmark = pytest.mark.twin

SLOW_S = 2.5
"""Longer than Azure ML waits for callers when it stops; shorter than the function app may take to end."""


def test_a_second_start_reuses_everything(tmp_path: Path) -> None:
    """Data and runs are still there, no asset is registered or uploaded again, and the next version is trained on."""
    first_options = options(tmp_path)
    with twin_under_test(first_options) as first:
        first.upload("steady/v1", whole_version())
        run_id = first.await_settled("steady/v1")["run_id"]
        first_calls = len(first.client.calls())
    with twin_under_test(first_options) as second:
        calls = second.client.calls()[first_calls:]
        kept = second.api.run(run_id)["state"]
        second.upload("steady/v2", whole_version())
        assert ("twin", "registered", set[str](), "registered") == (
            second.twin.places.folder.name,
            kept,
            {call["method"] for call in calls} - {"GET"},
            second.await_settled("steady/v2")["state"],
        )


def test_a_submission_under_way_is_finished_before_azure_ml_stops(tmp_path: Path) -> None:
    """Otherwise nobody has the run until its claim ends, and whoever starts the twin again waits for that."""
    the_options = options(tmp_path)
    with twin_under_test(the_options) as first:
        places = first.twin.places
        slow = {"match": {"method": "PUT", "path": "/jobs/"}, "do": {"delay_s": SLOW_S}}
        with httpx.Client(verify=ssl.create_default_context(cafile=places.ca_file), trust_env=False) as http:
            faults = f"{places.azure_ml_url}/twin/faults"
            http.post(faults, json=slow).raise_for_status()
            first.upload("steady/v1", whole_version())
            run_id = wait_until(lambda: submitting(first, "steady/v1"), what="the run to be submitted")
            wait_until(lambda: http.get(faults).json() == {"pending": 0}, what="the call to have come")
    with twin_under_test(the_options) as second:
        assert "submitting" != second.api.run(run_id)["state"]


def submitting(twin: TwinUnderTest, version: str) -> str | None:
    """The run of a version while it is being submitted."""
    return next((run["run_id"] for run in twin.runs(version) if run["state"] == "submitting"), None)


def test_two_twins_of_one_clone_do_not_collide(twin: TwinUnderTest) -> None:
    """Another twin gets a folder and ports of its own, and what happens in it is not seen in the first."""
    with twin_under_test(twin.twin.options) as other:
        other.upload("steady/elsewhere", whole_version())
        state = other.await_settled("steady/elsewhere")["state"]
        shared = set(other.twin.places.ports.numbers.values()) & set(twin.twin.places.ports.numbers.values())
        assert ("twin-2", "registered", set[int](), {}) == (
            other.twin.places.folder.name,
            state,
            shared,
            twin.version("steady/elsewhere"),
        )


def test_a_host_of_ones_own_gets_the_settings_in_a_file(tmp_path: Path) -> None:
    """All but the dev host is started; the file holds what it would have been given, for the user alone."""
    with twin_under_test(replace(options(tmp_path), own_host=True)) as twin:
        places = twin.twin.places
        values = json.loads(places.local_settings.read_text())["Values"]
        assert (3, places.host_connection, 0o600) == (
            len(twin.twin.pids()),
            values["AzureWebJobsStorage"],
            stat.S_IMODE(places.local_settings.stat().st_mode),
        )
