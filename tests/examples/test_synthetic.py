"""`synthetic-benchmark`, from the command line to its throughput: nothing is uploaded."""

from __future__ import annotations

import pytest

from cli.demo.following import TOPIC, WEBHOOK
from tests.examples.journeys import Journey, ended, landfall
from tests.support.twin import TwinUnderTest

pytestmark = [pytest.mark.slow, pytest.mark.twin, pytest.mark.distributed]

ASKED = {
    "model_name": "small_cnn",
    "image_height": 32,
    "image_width": 32,
    "per_process_batch_size": 4,
    "synthetic_records": 160,
    "mixed_precision": "none",
}
"""All within what the pipeline offers its callers: it runs as it ships, but for its two nodes of one process."""


@pytest.fixture(scope="module")
def journey(twin: TwinUnderTest, tmp_path_factory: pytest.TempPathFactory) -> Journey:
    """A run that was requested on the command line."""
    settings = [word for name, value in ASKED.items() for word in ("--set", f"{name}={value}")]
    places = twin.twin.places
    where = ["--url", places.functions_url, "--key", places.secrets.function_key]
    landfall("submit", "synthetic-benchmark", *settings, *where)
    return ended(twin, "synthetic-benchmark/synthetic", tmp_path_factory.mktemp("synthetic"))


def test_the_report_has_the_throughput_of_what_was_asked_for(journey: Journey) -> None:
    """20 steps of 2 x 4, of which ten are timing warm-up; random pixels, and the smallest network."""
    report = journey.report
    assert (2, 20, 10, True) == (
        report.world_size,
        report.rank_plan["training"]["steps"],
        report.details["step_times"]["timed_steps"],
        (report.images_per_s or 0) > 0,
    )
    assert ASKED == {name: report.details["options"][name] for name in ASKED}


def test_its_lineage_says_synthetic_and_there_is_no_model(journey: Journey, twin: TwinUnderTest) -> None:
    """The reason and the notification state the throughput."""
    reason = f"{journey.report.images_per_s:.6g} images/s on 2 processes"
    assert ("not_registered", "synthetic", None) == (
        journey.run["state"],
        journey.run["version"],
        journey.run["model_name"],
    )
    assert journey.run["reason"].endswith(f"registers no model of synthetic data; {reason}")
    run_id = journey.run["run_id"]
    [content] = [e["event"]["data"] for e in twin.client.received() if e["event"]["subject"] == run_id]
    assert reason in content["text"]
    assert [(TOPIC, "not_registered"), (WEBHOOK, "not_registered")] == sorted(twin.notifications(run_id))


def test_nothing_of_it_lies_in_the_data_account(twin: TwinUnderTest, journey: Journey) -> None:
    """The fingerprint is that of no shard at all, the same in ledger and report."""
    container = twin.blobs.get_container_client("datasets")
    assert [] == list(container.list_blob_names(name_starts_with="synthetic-benchmark/"))
    assert journey.run["fingerprint"] == journey.report.fingerprint
