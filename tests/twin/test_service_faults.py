"""Faults of Azure ML on a complete twin: which notifications are sent, and what the sweep finds without events."""

from __future__ import annotations

import pytest

from tests.support.twin import TwinUnderTest
from tests.twin.shards import whole_version
from tests.twin.test_missing_resources import text_about
from tests.twin.test_outcomes import await_state

pytestmark = pytest.mark.twin


def test_an_unknown_compute_is_named_with_what_to_do(twin: TwinUnderTest) -> None:
    """Afterwards the same version can be requested again without force, and is trained."""
    twin.client.fail_jobs("unknown_compute", job="steady-unknown")
    twin.upload("steady/unknown", whole_version())
    run = twin.await_settled("steady/unknown")
    assert ("failed", "configuration", "stop") == (run["state"], run["failure_class"], run["remedy"])
    text = text_about(twin, run["run_id"])
    assert (True, True) == ("has no cluster test-cluster" in text, "then: landfall submit steady/unknown" in text)
    twin.api.submit("steady", "unknown", {})
    assert "registered" == await_state(twin, "steady/unknown", "registered")["state"]


def test_a_submission_whose_answer_breaks_off_is_delivered_again(twin: TwinUnderTest) -> None:
    """The job already exists, so that there are one job and one model."""
    twin.client.fail_jobs("truncated", job="steady-truncated")
    twin.upload("steady/truncated", whole_version())
    run = await_state(twin, "steady/truncated", "registered")
    lines = twin.api.get(f"/api/why/{run['run_id']}")["lines"]
    assert (1, True) == (run["attempt"], "submission_delayed" in [line["action"] for line in lines])


def test_a_failed_job_that_no_event_tells_of_is_found_by_the_sweep(twin: TwinUnderTest) -> None:
    """The run has the end of its log, which the app reads with its own identity."""
    twin.client.fail_jobs("no_end_event", job="broken-silent")
    twin.upload("broken/silent", whole_version())
    run = await_state(twin, "broken/silent", "failed")
    assert "there is no column called colour" in twin.api.run(run["run_id"])["log_tail"]
