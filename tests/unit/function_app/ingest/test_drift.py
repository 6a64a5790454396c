"""Drift: a closing whose data differ too much from those of the current model warns, or starts no training."""

from __future__ import annotations

from typing import Any

import pytest

from function_app.domain.errors import PipelineError
from function_app.domain.records import DatasetVersion
from function_app.domain.run_states import RunState
from function_app.explain.description import describe_version
from function_app.registry.promotion import promote_by_person
from function_app.runs.requests import request_run
from function_app.sweep.sweep import sweep
from shard_validation import DriftPolicy
from tests.support.world import ALL_SHARDS, PIPELINE, WEBHOOK, World, pipeline, read_pipeline, shard_content

V2 = DatasetVersion(dataset="digits", version="v2")
EVEN, ODD = [0, 2, 4, 6, 8] * 100, [1, 3, 5, 7, 9] * 100


def drifting_world(**policy: Any) -> World:
    """A world in which even digits were trained on, and their model is registered."""
    world = World()
    data = pipeline().data.model_copy(update={"drift": DriftPolicy(**policy)})
    world.change_pipeline(data=data)
    upload_shards(world, "v1", EVEN)
    world.serve_requests()
    run = world.finish(world.only_run())
    if run.state is not RunState.REGISTERED:
        raise ValueError(f"the first model should be registered, was {run.state}: {run.reason}")
    return world


def upload_shards(world: World, version: str, labels: list[int]) -> None:
    """Upload a version; each shard has one record of its own, so that no two are the same."""
    for number, name in enumerate(ALL_SHARDS):
        world.deliver(world.put(name, shard_content(*labels, *labels[: number + 1]), version))


def notified_outcomes(world: World) -> list[str]:
    """Return the outcomes of the second version that the topic received."""
    return [n.outcome for n in world.topic.received if n.subject == str(V2)]


def test_a_blocked_version_closes_and_starts_no_training() -> None:
    """Recipients get the figures, the history says why, and nothing is in the queue."""
    world = drifting_world(action="block")
    upload_shards(world, "v2", ODD)
    assert ([], ["drift_blocked"]) == (world.requests.messages, notified_outcomes(world))
    assert ["drift_blocked"] == [n.outcome for n in world.people.received if n.subject == str(V2)]
    (notification,) = [n for n in world.topic.received if n.subject == str(V2)]
    figures = {
        (m["code"], m["split"]): round(m["value"], 9) for m in notification.content["measures"] if m["exceeds"]
    }
    assert {("drift_labels", "train"): 1.0, ("drift_labels", "validation"): 1.0} == figures
    (line,) = [d for d in world.ledger.history(str(V2)) if d.action == "drift_blocked"]
    assert (
        "so no run was started; to train on it anyway: landfall submit digits/v2: split train: labels" in line.reason
    )
    assert 1 == len([g for g in world.ledger.generation_rows if g[0] == V2])


def test_a_blocked_version_stays_blocked_and_is_notified_once() -> None:
    """Deliveries and sweeps repeat the question; the answer is on record."""
    world = drifting_world(action="block")
    upload_shards(world, "v2", ODD)
    for _ in range(3):
        world.deliver(f"{V2}/{ALL_SHARDS[0]}")
        world.clock.move(minutes=5)
        sweep(world.services)
    assert ([], ["drift_blocked"], 1) == (
        world.requests.messages,
        notified_outcomes(world),
        world.actions(V2).count("drift_blocked"),
    )


def test_a_description_has_all_figures_and_what_they_refer_to() -> None:
    """It includes figures within their thresholds, so that people see the distance."""
    world = drifting_world(action="warn")
    upload_shards(world, "v2", EVEN)
    drift = describe_version(V2, world.services).drift
    assert ("digits/v1", (), {"drift_labels", "drift_count"}) == (
        drift.trained_on,
        drift.messages,
        {measure["code"] for measure in drift.measures},
    )
    first = describe_version(DatasetVersion(dataset="digits", version="v1"), world.services).drift
    assert (None, ()) == (first.trained_on, first.measures)


def test_a_person_may_train_a_blocked_version() -> None:
    """It is whole and sound; whether it is what was wanted is for people to say."""
    world = drifting_world(action="block")
    upload_shards(world, "v2", ODD)
    run, is_new = request_run(V2, {}, trigger="http", services=world.services)
    world.serve_requests()
    assert (True, RunState.SUBMITTED) == (is_new, world.stands(run).state)


@pytest.mark.parametrize("action", ["warn", "ignore"])
def test_a_pipeline_that_blocks_no_more_lets_go_what_it_had_blocked(action: str) -> None:
    """The next sweep asks for the training; no further notification is sent."""
    world = drifting_world(action="block")
    upload_shards(world, "v2", ODD)
    world.change_pipeline(data=pipeline().data.model_copy(update={"drift": DriftPolicy(action=action)}))  # type: ignore[arg-type]
    world.clock.move(minutes=5)
    sweep(world.services)
    assert (1, ["drift_blocked"]) == (len(world.requests.messages), notified_outcomes(world))


def test_a_warning_is_notified_and_the_training_starts() -> None:
    """Warning is what a pipeline does that says nothing."""
    world = drifting_world()
    upload_shards(world, "v2", ODD)
    world.serve_requests()
    assert (["drift_warned"], 1) == (
        notified_outcomes(world),
        len([r for r in world.ledger.runs() if r.dataset_version == V2]),
    )
    assert (
        "split train: labels (label) are distributed differently"
        in describe_version(V2, world.services).drift.messages[0]
    )


def test_data_as_before_are_trained_without_a_word() -> None:
    """The comparison is in the history; no notification is sent."""
    world = drifting_world(action="block")
    upload_shards(world, "v2", list(reversed(EVEN)))
    assert (1, [], ()) == (
        len(world.requests.messages),
        notified_outcomes(world),
        describe_version(V2, world.services).drift.messages,
    )
    assert "drift_measured" in world.actions(V2)


def test_half_as_many_records_are_drift_of_counts() -> None:
    """Beyond the pipeline's own threshold."""
    world = drifting_world(action="block", max_count_change=0.3)
    upload_shards(world, "v2", EVEN[: len(EVEN) // 2])
    assert ["drift_blocked"] == notified_outcomes(world)
    assert (
        "split train: 503 records, a change of 50% from the 1003"
        in describe_version(V2, world.services).drift.messages[0]
    )


def test_drift_may_be_ignored() -> None:
    """Nothing is measured then."""
    world = drifting_world(action="ignore")
    upload_shards(world, "v2", ODD)
    marks = [name for name in world.ledger.mark_rows if not name.startswith("current-models/")]
    assert (1, [], []) == (len(world.requests.messages), notified_outcomes(world), marks)


def test_the_first_version_has_nothing_to_differ_from() -> None:
    """The same holds after runs that led to no model."""
    world = World()
    world.change_pipeline(data=pipeline().data.model_copy(update={"drift": DriftPolicy(action="block")}))
    upload_shards(world, "v1", EVEN)
    world.serve_requests()
    world.finish(world.only_run(), "Failed")
    upload_shards(world, "v2", ODD)
    assert (1, []) == (len(world.requests.messages), notified_outcomes(world))


def test_the_reference_is_the_current_model() -> None:
    """A later model counts once it is promoted, and not while it is only registered."""
    world = drifting_world(action="block")
    upload_shards(world, "v2", ODD)
    run, _ = request_run(V2, {}, trigger="http", services=world.services)
    world.serve_requests()
    world.clock.move(minutes=5)
    ended = world.finish(run)
    upload_shards(world, "v3", ODD)
    promote_by_person(str(ended.model_name), str(ended.model_version), world.services, by="a person")
    upload_shards(world, "v4", ODD)
    found = {n.subject for n in world.topic.received if n.outcome == "drift_blocked"}
    assert {str(V2), "digits/v3"} == found


@pytest.mark.parametrize("content", [None, b"no JSON", b"{}"])
def test_a_manifest_that_cannot_be_read_stops_nothing(content: bytes | None) -> None:
    """The history says that drift was not measured."""
    world = drifting_world(action="block")
    (manifest,) = world.documents.documents
    del world.documents.documents[manifest]
    if content is not None:
        world.documents.documents[manifest] = content
    upload_shards(world, "v2", ODD)
    assert (1, []) == (len(world.requests.messages), notified_outcomes(world))
    assert "drift_not_measured" in world.actions("digits/v1")


def test_a_pipeline_states_measure_threshold_and_action() -> None:
    """They are in its data section; contradictions are refused when the file is loaded."""
    text = PIPELINE.replace("  small_shard_ratio: 0.0", "  drift: {action: block, max_label_distance: 0.2}")
    drift = read_pipeline(text).data.drift
    assert DriftPolicy(action="block", max_label_distance=0.2) == drift
    with pytest.raises(PipelineError, match=r"data\.drift"):
        read_pipeline(text.replace("block", "panic"))


def test_each_recipient_is_notified_under_its_own_key() -> None:
    """One row for each recipient and closing."""
    world = drifting_world(action="block")
    upload_shards(world, "v2", ODD)
    keys = sorted(row.key for row in world.ledger.notifications(str(V2)))
    assert [f"{V2}/drift_blocked/g1/topic", f"{V2}/drift_blocked/g1/{WEBHOOK}"] == keys
