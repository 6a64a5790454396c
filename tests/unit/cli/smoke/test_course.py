"""The course of a smoke test against recorded answers: what holds, what does not, and what is then not tried."""

from __future__ import annotations

from typing import Any

import pytest

from cli.smoke.assertions import ASSERTIONS
from cli.smoke.course import Course, smoke_shards
from function_app.config.pipeline_files import load_pipelines
from shard_validation import validate_shard
from shard_validation.content import HeldSource
from tests.support.processes import REPOSITORY
from tests.unit.cli.smoke.deployment import FAILURE, PIPELINE, REPORT, SUCCESS, VERSION, Deployment, forbidden

AFTERWARDS = "removed"
"""The assertion that only the command makes."""


def outcomes(deployment: Deployment) -> tuple[Course, dict[str, str]]:
    course = deployment.course()
    course.run()
    return course, {assertion.name: assertion.outcome for assertion in course.results if assertion.name != AFTERWARDS}


def seen(course: Course, name: str) -> str:
    return next(assertion.seen for assertion in course.results if assertion.name == name)


def test_every_assertion_holds_where_all_is_well() -> None:
    """Three runs, and a sentence about each assertion as soon as it is known."""
    deployment = Deployment()
    course, found = outcomes(deployment)
    assert dict.fromkeys((assertion.name for assertion in ASSERTIONS[:-1]), "passed") == found
    assert ["training", "failing", "canceled"] == list(course.run_ids)
    assert len(found) == len(deployment.said)
    assert "noticed by an event" in seen(course, "end_events")


def test_the_shipped_pipeline_takes_the_shards() -> None:
    """The validator accepts both; the pipeline is on two nodes without GPUs."""
    pipeline = load_pipelines(REPOSITORY / "pipelines")["landfall-smoke"]
    assert (2, 1) == (pipeline.train.num_nodes, pipeline.machines.processes_per_node)
    requirements = pipeline.data.requirements()
    verdicts = [validate_shard(HeldSource(name, content), requirements) for name, content in smoke_shards().items()]
    assert [True, True] == [verdict.accepted for verdict in verdicts]


@pytest.mark.parametrize(
    ("changed", "failed"),
    [
        ({"report": REPORT | {"world_size": 1}}, "world_size"),
        ({"report": REPORT | {"num_nodes": 1}}, "nodes"),
        ({"report": REPORT | {"hosts": ["node-0"]}}, "nodes"),
        ({"announces": False}, "upload_event"),
        ({"stray_events": ["Microsoft.Storage.BlobDeleted changes nothing"]}, "upload_filter"),
        ({"ends": {"training": SUCCESS, "failing": FAILURE | {"failure_class": "unknown"}}}, "failure_class"),
        ({"ends": {"training": SUCCESS, "failing": FAILURE | {"reason": "it failed"}}}, "failure_words"),
        ({"ends": {"training": SUCCESS, "failing": FAILURE | {"log_tail": None}}}, "log_tail"),
    ],
)
def test_one_thing_that_is_wrong_fails_one_assertion(changed: dict[str, Any], failed: str) -> None:
    """All others hold, and what is said has the fix."""
    deployment = Deployment()
    for name, value in changed.items():
        setattr(deployment, name, value)
    _, found = outcomes(deployment)
    others = {name: outcome for name, outcome in found.items() if outcome != "passed"}
    if failed == "upload_event":  # then it is unknown whether a deletion is announced
        others.pop("upload_filter")
    assert {failed: "failed"} == others
    assert any(f"FAILED      {failed}: " in text and "do: " in text for text in deployment.said)


def test_a_model_that_is_not_registered_and_a_recipient_who_hears_nothing() -> None:
    """The run's own reason and the recipient's error are shown."""
    deployment = Deployment()
    refused = {"recipient": "topic", "state": "pending", "last_error": "403"}
    bad = SUCCESS | {"state": "not_registered", "model_name": None, "reason": "x", "notifications": [refused]}
    deployment.ends["training"] = bad
    course, found = outcomes(deployment)
    assert ("failed", "failed") == (found["model_registered"], found["notification_sent"])
    assert "not_registered: x" in seen(course, "model_registered")
    assert "topic: pending: 403" in seen(course, "notification_sent")


@pytest.mark.parametrize(
    ("changed", "failed", "shown"),
    [
        ({"health": (503, {"status": "misconfigured"})}, "app_healthy", "503"),
        ({"pipelines": []}, "pipeline_in_service", "no pipeline has the dataset landfall-smoke"),
        (
            {"pipelines": [PIPELINE | {"state": "out_of_service", "machines": None, "problems": ["no size"]}]},
            "pipeline_in_service",
            "no size",
        ),
        (
            {"pipelines": [PIPELINE | {"machines": {**PIPELINE["machines"], "device": "gpu"}}]},  # type: ignore[dict-item]
            "pipeline_in_service",
            "gpu",
        ),
    ],
)
def test_without_the_app_or_its_pipeline_nothing_is_uploaded(
    changed: dict[str, Any], failed: str, shown: str
) -> None:
    """What failed is named; all that would follow is not reached."""
    deployment = Deployment()
    for name, value in changed.items():
        setattr(deployment, name, value)
    course, found = outcomes(deployment)
    assert shown in seen(course, failed)
    assert {failed} == {name for name, outcome in found.items() if outcome == "failed"}
    assert (found["storage_writable"], {}) == ("not_reached", deployment.data.blobs)


def test_a_role_that_does_not_count_yet_is_waited_for() -> None:
    """Two refusals, then the write is allowed."""
    deployment = Deployment()
    deployment.data.refusals = [forbidden(), forbidden()]
    _, found = outcomes(deployment)
    assert "passed" == found["storage_writable"]


def test_a_role_that_is_missing_is_named() -> None:
    """After a quarter of an hour, the message has storage's answer, and who needs which role."""
    deployment = Deployment()
    deployment.data.refusals = [forbidden() for _ in range(100)]
    course, found = outcomes(deployment)
    assert "failed" == found["storage_writable"]
    assert "not authorized" in seen(course, "storage_writable")
    assert deployment.seconds > 800


def test_a_rejected_shard_ends_the_test_with_its_reason() -> None:
    """No run can follow."""
    deployment = Deployment()
    deployment.rejected = [{"shard": "s", "reasons": [{"message": "no label"}]}]
    course, found = outcomes(deployment)
    assert ("failed", "not_reached") == (found["shards_accepted"], found["job_submitted"])
    assert "no label" in seen(course, "shards_accepted")


def test_an_app_that_does_not_answer_for_a_while_is_asked_again() -> None:
    """A deployment restarts instances."""
    deployment = Deployment()
    course = deployment.course()
    assert course.wait(lambda: course.api.pipelines() or None, 60)
    deployment.down_until_s = deployment.seconds + 30
    assert course.wait(lambda: course.api.pipelines() or None, 60)
    assert 30 <= deployment.seconds < 60


def test_new_dead_letters_of_the_test_are_shown_and_others_are_not() -> None:
    """One that was there before, one of another dataset, one that names nothing, one of this test."""
    old, other, unknown, own = (
        {"dead_letter_id": name, "subject": subject, "error": f"about {name}"}
        for name, subject in (("a", ""), ("b", "digits/v1"), ("c", ""), ("d", f"landfall-smoke/{VERSION}/x"))
    )
    deployment = Deployment()
    deployment.letters = [[old], [old, other, unknown, own]]
    course, found = outcomes(deployment)
    assert ("failed", "c: about c; d: about d") == (found["queue_encoding"], seen(course, "queue_encoding"))


def test_ends_that_the_sweep_noticed_are_written_down() -> None:
    """Azure ML documents no event for some ends, so that is no failure."""
    deployment = Deployment()
    deployment.noticed_by = "sweep"
    course, found = outcomes(deployment)
    assert "passed" == found["end_events"]
    assert "the end of the failing run was noticed by the sweep" in seen(course, "end_events")
