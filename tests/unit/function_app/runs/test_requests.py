"""Requests for runs: on a whole version or on synthetic data, within limits, one run for each request."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from function_app.domain.errors import NotFoundError, OverrideError, VersionNameError, VersionNotWholeError
from function_app.domain.events import TrainingRequest
from function_app.domain.records import DatasetVersion, RunRecord
from function_app.domain.run_states import RunState
from function_app.explain.description import describe_version
from function_app.explain.history import why
from function_app.runs.requests import asked_version, overridden, request_run, synthetic_closing
from function_app.runs.submission import handle_request
from function_app.sweep.sweep import run_sweep
from shared.manifest import Manifest
from tests.support.synthetic import SYNTHETIC, synthetic_pipeline, synthetic_world
from tests.support.world import ALL_SHARDS, TRAIN_SHARDS, VERSION, World, pipeline


def test_a_request_with_another_option_is_another_run() -> None:
    """It is claimed and queued; the queue submits it."""
    world = World()
    first = world.upload_version()
    world.finish(first)
    run, is_new = request_run(VERSION, {"epochs": 5}, trigger="http", services=world.services)
    world.serve_requests()
    assert (True, RunState.PLANNED, "http") == (is_new, run.state, run.trigger)
    assert [first.run_id, run.run_id] == world.jobs.submissions
    assert "--epochs 5 " in world.jobs.submitted[run.run_id].command


def test_the_same_request_again_meets_its_run() -> None:
    """This includes the run that the closing started."""
    world = World()
    first = world.upload_version()
    run, is_new = request_run(VERSION, {}, trigger="http", services=world.services)
    assert (first.run_id, False, []) == (run.run_id, is_new, world.requests.messages)


def test_a_run_that_was_claimed_and_never_queued_is_queued() -> None:
    """The process that asked first died in between."""
    world = World()
    world.upload_version()
    request_run(VERSION, {"epochs": 5}, trigger="http", services=world.services)
    world.requests.messages.clear()
    _, is_new = request_run(VERSION, {"epochs": 5}, trigger="http", services=world.services)
    assert (False, 1) == (is_new, len(world.requests.messages))


def test_a_version_that_is_not_whole_says_what_is_missing() -> None:
    """Every shard by its name."""
    world = World()
    world.upload_shards(TRAIN_SHARDS[0])
    with pytest.raises(VersionNotWholeError, match="digits/v1 is not complete: 2 missing") as caught:
        request_run(VERSION, {}, trigger="http", services=world.services)
    assert ("train-00001-of-00002", "validation-*: no shard of this split has arrived yet") == caught.value.missing


def test_an_unknown_subject_is_not_found() -> None:
    """A dataset without a pipeline."""
    with pytest.raises(NotFoundError, match="dataset 'letters' has no pipeline"):
        request_run(DatasetVersion(dataset="letters", version="v1"), {}, trigger="http", services=World().services)


def test_an_override_beyond_its_limit_claims_nothing() -> None:
    """It is refused before anything is written."""
    world = World()
    world.upload_shards(*ALL_SHARDS)
    with pytest.raises(OverrideError):
        request_run(VERSION, {"epochs": 1000}, trigger="http", services=world.services)
    assert [] == world.ledger.runs()


def test_what_is_within_the_limits_is_taken() -> None:
    """A whole number is a learning rate, too."""
    options = overridden(pipeline(), {"epochs": 100, "learning_rate": 0.05, "optimizer": "sgd"})
    assert (100, 0.05, "sgd") == (options.epochs, options.learning_rate, options.optimizer)


def test_nothing_overridden_is_the_pipeline() -> None:
    """The run is then the one that a closing would start."""
    assert pipeline().train.options == overridden(pipeline(), {})


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"num_nodes": 8},
            "num_nodes cannot be overridden; pipeline digits offers epochs, learning_rate, optimizer",
        ),
        ({"seed": 1}, "seed cannot be overridden"),
        ({"epochs": 0}, "epochs: expected at least 1, got 0"),
        ({"epochs": 101}, "epochs: expected at most 100, got 101"),
        ({"epochs": 2.0}, "epochs: expected int, got '2.0'"),
        ({"epochs": True}, "epochs: expected int, got 'True'"),
        ({"epochs": "2"}, "epochs: expected int, got '2'"),
        ({"learning_rate": math.nan}, "learning_rate: expected a finite number, got nan"),
        ({"learning_rate": 10**400}, "learning_rate: expected a finite number, got 1000"),
        ({"learning_rate": 1}, "learning_rate: expected at most 0.1, got 1"),
        ({"optimizer": "${{inputs.data}}; rm -r /"}, "optimizer: expected one of"),
        ({"optimizer": "x" * 201}, "optimizer: expected at most 200 characters, got 201"),
    ],
)
def test_what_is_beyond_is_refused_with_the_limit(overrides: dict[str, Any], message: str) -> None:
    """A caller of the API has no say over code, cluster size or cost."""
    with pytest.raises(OverrideError) as caught:
        overridden(pipeline(), overrides)
    assert str(caught.value).startswith(message)


def forced(world: World, key: str) -> tuple[RunRecord, bool]:
    """What a request with force is answered."""
    return request_run(VERSION, {}, trigger="http", services=world.services, forced_by=key)


def test_a_forced_request_trains_again_and_says_so_in_history_and_lineage() -> None:
    """Without force, the same request returns the existing run."""
    world = World()
    first = world.finish(world.upload_version())
    met, _ = request_run(VERSION, {}, trigger="http", services=world.services)
    run, is_new = forced(world, "key-1")
    world.serve_requests()
    run = world.finish(run)
    assert (first.run_id, True, "registered", "key-1") == (met.run_id, is_new, run.state, run.forced_by)
    models = {model.tags["landfall.run_id"]: model.tags for model in world.models.registered.values()}
    assert (None, "true", "true") == (
        models[first.run_id].get("landfall.forced"),
        models[run.run_id]["landfall.forced"],
        world.jobs.submitted[run.run_id].tags["landfall.forced"],
    )
    assert "run_forced" in world.actions(run.run_id)
    assert "run_forced" in world.actions(VERSION)


def test_the_same_request_repeated_is_the_same_run() -> None:
    """An answer that was lost on the way does not double anything; another key is another request."""
    world = World()
    world.finish(world.upload_version())
    answers = [forced(world, key) for key in ("key-1", "key-1", "key-2")]
    assert ([True, False, True], 2) == ([is_new for _, is_new in answers], len({run.run_id for run, _ in answers}))
    assert 1 == world.actions(answers[0][0].run_id).count("run_forced")


def test_a_forced_run_waits_like_any_other() -> None:
    """The run queue holds for it, too."""
    world = World()
    first = world.upload_version()
    run, _ = forced(world, "key-1")
    world.serve_requests()
    assert [first.run_id] == world.jobs.submissions
    world.finish(first)
    assert [first.run_id, run.run_id] == world.jobs.submissions


def test_what_a_lost_run_says_to_do_trains_again() -> None:
    """Asking without force meets the lost run: it is unknown whether it has trained."""
    world = World()
    run = world.upload_version()
    world.jobs.forget(run.run_id)
    world.clock.move(hours=1)
    world.follow(run)
    assert (world.stands(run).reason or "").endswith("To train again: landfall submit digits/v1 --force")
    met, met_is_new = request_run(VERSION, {}, trigger="cli", services=world.services)
    _, forced_is_new = forced(world, "key-1")
    assert (run.run_id, RunState.LOST, False, True) == (met.run_id, met.state, met_is_new, forced_is_new)


SYNTHETIC_VERSION = DatasetVersion(dataset=SYNTHETIC, version="synthetic")


def asked_for_synthetic(world: World, **overrides: object) -> RunRecord:
    """Ask for a run as the HTTP API does, and have it submitted; return it."""
    version = asked_version(SYNTHETIC, None, world.services)
    run, _ = request_run(version, overrides, trigger="http", services=world.services)
    world.serve_requests()
    return world.stands(run)


def test_a_synthetic_run_needs_no_data_and_mounts_none() -> None:
    """The job gets a manifest that says synthetic, and no folder of shards."""
    world = synthetic_world()
    run = asked_for_synthetic(world)
    job = world.jobs.submitted[run.run_id]
    (manifest,) = (Manifest.from_json(content) for content in world.documents.documents.values())
    assert (RunState.SUBMITTED, SYNTHETIC_VERSION, ["manifest"], "synthetic", ()) == (
        run.state,
        run.dataset_version,
        list(job.inputs),
        manifest.data_format,
        manifest.shards,
    )
    assert "--data '' " in job.command
    assert f"{SYNTHETIC}/synthetic" == job.tags["landfall.dataset_version"]


def test_synthetic_requests_for_the_same_model_are_one_run() -> None:
    """One closing for all of them."""
    world = synthetic_world()
    first, again, other = (
        asked_for_synthetic(world),
        asked_for_synthetic(world),
        asked_for_synthetic(world, model_name="VGG16"),
    )
    assert (first.run_id, True, 1) == (
        again.run_id,
        other.run_id != first.run_id,
        len(world.ledger.generations(SYNTHETIC_VERSION)),
    )


def test_a_synthetic_closing_stands_as_it_was_first_written_down() -> None:
    """A later request is on the very same one, its moment included."""
    world = synthetic_world()
    asked_for_synthetic(world)
    closing = synthetic_closing(synthetic_pipeline(), SYNTHETIC_VERSION, world.services)
    assert world.ledger.latest_generation(SYNTHETIC_VERSION) == closing


def test_a_synthetic_run_ends_with_its_throughput_and_without_a_model() -> None:
    """The reason says what was measured: that is what the run was for."""
    world = synthetic_world()
    run = world.finish(asked_for_synthetic(world))
    assert (RunState.NOT_REGISTERED, {}) == (run.state, world.models.registered)
    assert f"pipeline {SYNTHETIC} registers no model of synthetic data; 100 images/s on 2 processes" == (run.reason)


def test_a_run_of_which_nothing_was_timed_says_so() -> None:
    """It was shorter than the timing warm-up."""
    world = synthetic_world()
    run = asked_for_synthetic(world)
    world.write_report(run, {}, images_per_s=None)
    world.jobs.become(run.run_id, "Completed")
    world.follow(run)
    assert "registers no model of synthetic data; nothing was timed on 2 processes" in (
        world.stands(run).reason or ""
    )


def test_uploads_to_synthetic_data_close_nothing() -> None:
    """A shard or a file of counts under its name matches no pipeline, also for the sweep."""
    world = synthetic_world()
    names = ("train-00000-of-00001.tfrecord", "dataset.json")
    for name in names:
        world.deliver(world.put(name, b"{}", "synthetic", SYNTHETIC))
    world.clock.move(hours=1)
    report = run_sweep(world.services)
    assert (0, (), None) == (report.shards_missed, report.problems, world.ledger.latest_generation(SYNTHETIC_VERSION))
    actions = [world.actions(f"{SYNTHETIC}/synthetic/{name}") for name in names]
    assert [["event_suppressed"]] * 2 == actions


def test_a_dataset_that_becomes_synthetic_closes_nothing_of_before() -> None:
    """Shards that were uploaded for its former pipeline are not taken for a whole version of no splits."""
    world = World()
    world.upload_shards(TRAIN_SHARDS[0])
    members = {"pipeline": "digits", "dataset": "digits"}
    world.services = replace(world.services, pipelines={"digits": synthetic_pipeline().model_copy(update=members)})
    world.clock.move(hours=1)
    report = run_sweep(world.services)
    assert (1, (), None) == (report.versions, report.problems, world.ledger.latest_generation(VERSION))


def test_a_synthetic_version_can_be_described() -> None:
    """No splits, one closing, the runs."""
    world = synthetic_world()
    run = asked_for_synthetic(world)
    described = describe_version(SYNTHETIC_VERSION, world.services)
    assert ((), [run.run_id]) == (described.splits, [one.run_id for one in described.runs])
    assert described.generation == world.ledger.latest_generation(SYNTHETIC_VERSION)


def test_nothing_is_awaited_once_a_synthetic_run_has_ended() -> None:
    """The history begins with the closing; no training is awaited without a request."""
    world = synthetic_world()
    world.finish(asked_for_synthetic(world))
    history = why(str(SYNTHETIC_VERSION), world.services)
    assert ("version_closed", ()) == (history.lines[0].action, history.awaited)


@pytest.mark.parametrize(
    ("dataset", "version", "problem"),
    [
        (SYNTHETIC, "v1", "is synthetic and has no versions: ask for speed alone, not v1"),
        ("digits", None, "which version of digits"),
    ],
)
def test_a_version_too_many_or_too_few_is_refused(dataset: str, version: str | None, problem: str) -> None:
    """They are refused before anything is written."""
    world = synthetic_world()
    with pytest.raises(VersionNameError, match=problem):
        asked_version(dataset, version, world.services)


def test_the_version_may_be_named_as_the_ledger_names_it() -> None:
    """What `landfall runs` prints can be asked for again."""
    assert asked_version(SYNTHETIC, "synthetic", synthetic_world().services) == SYNTHETIC_VERSION


def test_a_message_that_names_no_run_starts_the_one_of_the_closing() -> None:
    """An old message, delivered by hand, does what it does for other data."""
    world = synthetic_world()
    run = asked_for_synthetic(world)
    handle_request(TrainingRequest(dataset_version=SYNTHETIC_VERSION, generation=1, trigger="closed"), world.services)
    assert [run.run_id] == world.jobs.submissions
