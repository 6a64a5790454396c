"""A pipeline whose file cannot be used: its dataset waits, nothing of it is lost, and the others go on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from function_app.domain.run_states import RunState
from function_app.explain.history import why
from function_app.runs.cancellation import cancel_run
from function_app.runs.requests import request_run
from function_app.sweep.sweep import run_sweep
from tests.support.world import ALL_SHARDS, TRAIN_SHARDS, VERSION, World
from tests.unit.function_app.web.client import call, error

OUTAGE = "the pipeline of dataset digits is out of service: digits.yaml: train: is required"


def swept(world: World) -> None:
    """Sweep, when everything is old enough to be swept, until nothing is left to do."""
    for _ in range(2):
        world.clock.move(minutes=10)
        assert () == run_sweep(world.services).problems
        world.serve_requests()


def two_datasets() -> World:
    """A world in which the digits' pipeline is broken and that of the cats is not."""
    world = World()
    world.add_pipelines("cats")
    world.break_pipeline()
    return world


def test_what_is_uploaded_meanwhile_is_judged_and_trained_when_the_file_is_corrected() -> None:
    """The events have come and gone; none of them became a dead letter."""
    world = two_datasets()
    world.upload_shards(*ALL_SHARDS)
    assert ["upload_waits"] == world.actions(f"{VERSION}/{TRAIN_SHARDS[0]}")
    swept(world)
    assert [] == world.ledger.runs()
    world.correct_pipeline()
    swept(world)
    assert RunState.SUBMITTED is world.only_run().state


def test_what_is_uploaded_for_a_file_that_does_not_tell_its_dataset_is_judged_too() -> None:
    """Its events count as other people's, since any dataset may be meant; the sweep lists the dataset afterwards."""
    world = World()
    world.services = replace(world.services, pipelines={}, out_of_service={"": ("x.yaml: not valid YAML",)})
    world.upload_shards(*ALL_SHARDS)
    assert {"2026-11-20": len(ALL_SHARDS)} == world.ledger.counter_rows["upload_events_of_others"]
    world.correct_pipeline()
    swept(world)
    assert RunState.SUBMITTED is world.only_run().state


def test_the_others_go_on() -> None:
    """One dataset's file stops no upload, submission, end or sweep of another."""
    world = two_datasets()
    run = world.train(dataset="cats")
    assert RunState.REGISTERED is world.finish(run).state


@pytest.mark.parametrize(("status", "state"), [("Completed", RunState.REGISTERED), ("Failed", RunState.FAILED)])
def test_a_run_that_ends_meanwhile_is_settled_by_the_corrected_file(status: str, state: RunState) -> None:
    """Its requirements, attempts and recipients are in the file; until then it holds up no other."""
    world = World()
    world.services = replace(world.services, max_concurrent_runs=1)
    world.add_pipelines("cats")
    run = world.train()
    world.break_pipeline()
    assert RunState.SUBMITTED is world.finish(run, status).state
    assert [] == world.topic.received
    assert any(OUTAGE in line for line in why(run.run_id, world.services).awaited)
    assert RunState.SUBMITTED is world.train(dataset="cats").state
    world.correct_pipeline()
    swept(world)
    assert state is world.stands(run).state
    assert [state] == [sent.outcome for sent in world.topic.received if sent.subject == run.run_id]


def test_a_planned_run_waits_for_the_corrected_file_and_leaves_its_place_to_others() -> None:
    """This holds even if the whole app has only one place for runs."""
    world = World()
    world.services = replace(world.services, max_concurrent_runs=1)
    world.add_pipelines("cats")
    first = world.train()
    second, _ = request_run(VERSION, {"epochs": 5}, trigger="http", services=world.services)
    world.serve_requests()
    world.break_pipeline()
    world.finish(first)
    assert RunState.PLANNED is world.stands(second).state
    other = world.train(dataset="cats")
    assert RunState.SUBMITTED is other.state
    world.finish(other)
    world.correct_pipeline()
    swept(world)
    assert RunState.SUBMITTED is world.stands(second).state


def test_people_are_notified_of_a_cancellation_when_the_file_is_corrected() -> None:
    """The recipients are named in the file."""
    world = World()
    run = world.train()
    world.break_pipeline()
    cancel_run(run.run_id, canceled_by="person", reason="not needed", services=world.services)
    world.end_job(run, "Canceled")
    swept(world)
    world.correct_pipeline()
    swept(world)
    assert RunState.CANCELED is world.stands(run).state
    assert ["pipeline_out_of_service", "canceled"] == [sent.outcome for sent in world.topic.received]


def test_people_are_notified_once_for_each_outage() -> None:
    """The notification has the errors and the command; there is another one if the file breaks again."""
    world = two_datasets()
    for _ in range(3):
        swept(world)
    world.correct_pipeline()
    swept(world)
    world.break_pipeline()
    swept(world)
    first, second = (sent for sent in world.topic.received if sent.outcome == "pipeline_out_of_service")
    assert "digits.yaml: train: is required. To check the file yourself: landfall check" in first.content["text"]
    assert first.key != second.key
    assert 2 == len(world.people.received)


def test_a_file_whose_recipients_cannot_be_read_is_reported_when_they_can() -> None:
    """A file that is not YAML does not tell whom to notify."""
    world = two_datasets()
    recipients = world.services.outage_recipients
    world.services = replace(world.services, outage_recipients={})
    swept(world)
    assert [] == world.topic.received
    world.services = replace(world.services, outage_recipients=recipients)
    swept(world)
    assert ["pipeline_out_of_service"] == [sent.outcome for sent in world.topic.received]


def test_a_request_is_made_again_by_the_sweep() -> None:
    """The message of the closing is answered and gone; the closing still owes its run."""
    world = World()
    world.upload_shards(*ALL_SHARDS)
    world.break_pipeline()
    world.serve_requests()
    assert OUTAGE in [entry.reason for entry in world.ledger.history(str(VERSION))]
    world.correct_pipeline()
    swept(world)
    assert RunState.SUBMITTED is world.only_run().state


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", f"/api/datasets/{VERSION}", None),
        ("POST", "/api/runs", {"dataset": "digits", "version": "v1"}),
    ],
)
def test_the_api_says_why(method: str, path: str, body: dict[str, str] | None) -> None:
    """503: asking again helps once the file is corrected."""
    answer = call(two_datasets(), method, path, json=body)
    assert (503, "pipeline_out_of_service") == error(answer)
    assert OUTAGE == answer.json()["detail"]


def test_the_api_lists_the_pipelines() -> None:
    """Those to correct come first, with everything that is wrong."""
    listed = call(two_datasets(), "GET", "/api/pipelines").json()["pipelines"]
    layouts = [each.pop("layout") for each in listed]
    assert (None, "names") == (layouts[0], layouts[1]["kind"])
    machines = [each.pop("machines") for each in listed]
    assert machines[0] is None
    assert {"num_nodes", "world_size", "cluster", "vm_size", "device"} == set(machines[1])
    problems = ["digits.yaml: train: is required"]
    assert [
        {
            "dataset": "digits",
            "pipeline": None,
            "state": "out_of_service",
            "splits": None,
            "problems": problems,
        },
        {
            "dataset": "cats",
            "pipeline": "cats",
            "state": "in_service",
            "splits": ["train", "validation"],
            "problems": [],
        },
    ] == listed


def test_the_history_says_what_a_version_and_a_blob_wait_for() -> None:
    """An upload that waits is explained like any other."""
    world = two_datasets()
    world.upload_shards(*ALL_SHARDS)
    for subject in (str(VERSION), f"{VERSION}/{TRAIN_SHARDS[0]}"):
        assert any(OUTAGE in line for line in why(subject, world.services).awaited)
