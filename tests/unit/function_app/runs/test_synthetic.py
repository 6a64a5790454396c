"""Runs on synthetic data: asked for by hand, without a version, and followed as any other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from function_app.domain.errors import VersionNameError
from function_app.domain.events import TrainingRequest
from function_app.domain.records import DatasetVersion, RunRecord
from function_app.domain.run_states import RunState
from function_app.explain.description import describe_version
from function_app.explain.history import why
from function_app.runs.following import reconcile_run
from function_app.runs.requests import asked_version, request_run, synthetic_closing
from function_app.runs.submission import handle_request
from function_app.sweep.sweep import run_sweep
from shared.manifest import Manifest
from tests.support.synthetic import SYNTHETIC, synthetic_pipeline, synthetic_world
from tests.support.world import TRAIN_SHARDS, World
from tests.support.world import VERSION as DIGITS

VERSION = DatasetVersion(dataset=SYNTHETIC, version="synthetic")


def asked(world: World, **overrides: object) -> RunRecord:
    """Ask for a run as the HTTP API does, and have it submitted; return it."""
    version = asked_version(SYNTHETIC, None, world.services)
    run, _ = request_run(version, overrides, trigger="http", services=world.services)
    world.serve_requests()
    return world.stands(run)


def test_a_run_needs_no_data_and_mounts_none() -> None:
    """The job gets a manifest that says synthetic, and no folder of shards."""
    world = synthetic_world()
    run = asked(world)
    job = world.jobs.submitted[run.run_id]
    (manifest,) = (Manifest.from_json(content) for content in world.documents.documents.values())
    assert (RunState.SUBMITTED, VERSION, ["manifest"], "synthetic", ()) == (
        run.state,
        run.dataset_version,
        list(job.inputs),
        manifest.data_format,
        manifest.shards,
    )
    assert "--data '' " in job.command
    assert f"{SYNTHETIC}/synthetic" == job.tags["landfall.dataset_version"]


def test_the_same_request_again_is_the_same_run_and_another_model_is_another() -> None:
    """One closing for all of them."""
    world = synthetic_world()
    first, again, other = asked(world), asked(world), asked(world, model_name="VGG16")
    assert (first.run_id, True, 1) == (
        again.run_id,
        other.run_id != first.run_id,
        len(world.ledger.generations(VERSION)),
    )


def test_the_closing_stands_as_it_was_first_written_down() -> None:
    """A later request is on the very same one, its moment included."""
    world = synthetic_world()
    asked(world)
    closing = synthetic_closing(synthetic_pipeline(), VERSION, world.services)
    assert world.ledger.latest_generation(VERSION) == closing


def test_it_ends_with_its_throughput_and_without_a_model() -> None:
    """The reason says what was measured: that is what the run was for."""
    world = synthetic_world()
    run = world.finish(asked(world))
    assert (RunState.NOT_REGISTERED, {}) == (run.state, world.models.registered)
    assert f"pipeline {SYNTHETIC} registers no model of synthetic data; 100 images/s on 2 processes" == (run.reason)


def test_a_run_of_which_nothing_was_timed_says_so() -> None:
    """It was shorter than the timing warm-up."""
    world = synthetic_world()
    run = asked(world)
    world.write_report(run, {}, images_per_s=None)
    world.jobs.become(run.run_id, "Completed")
    reconcile_run(run.run_id, world.services)
    assert "registers no model of synthetic data; nothing was timed on 2 processes" in (
        world.stands(run).reason or ""
    )


def test_uploads_close_nothing() -> None:
    """A shard or a file of counts under its name is nobody's, also for the sweep."""
    world = synthetic_world()
    names = ("train-00000-of-00001.tfrecord", "dataset.json")
    for name in names:
        world.deliver(world.put(name, b"{}", "synthetic", SYNTHETIC))
    world.clock.move(hours=1)
    report = run_sweep(world.services)
    assert (0, (), None) == (report.shards_judged, report.problems, world.ledger.latest_generation(VERSION))
    told = [world.actions(f"{SYNTHETIC}/synthetic/{name}") for name in names]
    assert [["event_suppressed"]] * 2 == told


def test_a_dataset_that_becomes_synthetic_closes_nothing_of_before() -> None:
    """Shards that landed for its former pipeline are not taken for a whole version of no splits."""
    world = World()
    world.land(TRAIN_SHARDS[0])
    members = {"pipeline": "digits", "dataset": "digits"}
    world.services = replace(world.services, pipelines={"digits": synthetic_pipeline().model_copy(update=members)})
    world.clock.move(hours=1)
    report = run_sweep(world.services)
    assert (1, (), None) == (report.versions, report.problems, world.ledger.latest_generation(DIGITS))


def test_its_version_can_be_described() -> None:
    """No splits, one closing, the runs."""
    world = synthetic_world()
    run = asked(world)
    described = describe_version(VERSION, world.services)
    assert ((), [run.run_id]) == (described.splits, [one.run_id for one in described.runs])
    assert described.generation == world.ledger.latest_generation(VERSION)


def test_nothing_is_awaited_once_its_run_has_ended() -> None:
    """The story begins with the closing; no training is owed that nobody has asked for."""
    world = synthetic_world()
    world.finish(asked(world))
    story = why(str(VERSION), world.services)
    assert ("version_closed", ()) == (story.lines[0].action, story.awaited)


@pytest.mark.parametrize(
    ("dataset", "version", "problem"),
    [
        (SYNTHETIC, "v1", "is synthetic and has no versions: ask for speed alone, not v1"),
        ("digits", None, "which version of digits"),
    ],
)
def test_a_version_too_many_or_too_few_is_refused(dataset: str, version: str | None, problem: str) -> None:
    """Before anything is written."""
    world = synthetic_world()
    with pytest.raises(VersionNameError, match=problem):
        asked_version(dataset, version, world.services)


def test_the_version_may_be_named_as_the_ledger_names_it() -> None:
    """What `landfall runs` prints can be asked for again."""
    assert asked_version(SYNTHETIC, "synthetic", synthetic_world().services) == VERSION


def test_a_message_that_names_no_run_starts_the_one_of_the_closing() -> None:
    """An old message, delivered by hand, does what it does for other data."""
    world = synthetic_world()
    run = asked(world)
    handle_request(TrainingRequest(dataset_version=VERSION, generation=1, trigger="closed"), world.services)
    assert [run.run_id] == world.jobs.submissions
