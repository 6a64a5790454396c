"""Registration: a completed run becomes one model version, whose tags lead back to run, data and code."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from function_app.domain.errors import ServiceUnavailableError, SubmissionRefusedError
from function_app.domain.model_versions import CURRENT_TAG
from function_app.domain.run_states import RunState
from function_app.registry.promotion import current_model
from function_app.runs.registration import model_version
from tests.support.world import World, ended_run, pipeline


def test_a_completed_run_whose_gate_holds_is_registered_with_its_lineage() -> None:
    """The model leads back to run, data and code."""
    world, run = ended_run(val_accuracy=0.97, val_loss=0.1)
    (model,) = world.models.registered.values()
    assert (RunState.REGISTERED, "digits-cnn", model_version(run)) == (run.state, run.model_name, run.model_version)
    assert ({"val_accuracy": 0.97, "val_loss": 0.1}, f"azureml://jobs/{run.run_id}/outputs/model") == (
        run.metrics,
        model.path,
    )
    lineage = {name: model.tags[f"landfall.{name}"] for name in ("run_id", "dataset_version", "fingerprint", "code")}
    assert {
        "run_id": run.run_id,
        "dataset_version": "digits/v1",
        "fingerprint": run.fingerprint,
        "code": "landfall-training/versions/abc",
    } == lineage


def test_the_lineage_names_the_version_of_the_delta_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the table version of the closing that was trained on."""
    world = World()
    run = world.upload_version()
    (closing,) = world.ledger.generations(run.dataset_version)
    later = replace(closing, number=2, table_version=8)
    monkeypatch.setattr(world.ledger, "generations", lambda _: [later, replace(closing, table_version=7)])
    world.finish(run)
    tags = [model.tags for model in world.models.registered.values()]
    assert (["7"], run.run_id) == ([one["landfall.table_version"] for one in tags], tags[0]["landfall.run_id"])
    assert "landfall.complete_by_guess" not in tags[0]


@pytest.mark.parametrize(("duration_s", "images_per_s"), [(1e-200, 1e-200), (1e9, 5e-324)])
def test_a_report_with_numbers_too_small_for_a_float_gives_no_pace(duration_s: float, images_per_s: float) -> None:
    """The number of images is 0, or the time per image infinite; the model is registered all the same."""
    world = World()
    run = world.upload_version()
    epoch = {"duration_s": duration_s, "images_per_s": images_per_s}
    world.write_report(run, {"val_accuracy": 1.0}, epochs=(epoch,))
    world.jobs.become(run.run_id, "Completed")
    found = world.follow(run)
    assert (RunState.REGISTERED, {}) == (found.state, found.pace)


def test_looking_again_registers_and_notifies_nothing_again() -> None:
    """The number of events and timers does not matter."""
    world, run = ended_run()
    for _ in range(3):
        world.follow(run)
    assert (1, 1, 1) == (len(world.models.registered), len(world.topic.received), len(world.people.received))


def test_a_registry_that_refuses_is_a_reason() -> None:
    """The evidence was good; the model is not there all the same, and people must know."""
    world = World()
    run = world.upload_version()
    world.models.refusal = "no right to register"
    world.end_job(run)
    assert (RunState.NOT_REGISTERED, "no right to register") == (
        (found := world.follow(run)).state,
        found.reason,
    )


def test_a_refused_tag_does_not_undo_a_registration(monkeypatch: pytest.MonkeyPatch) -> None:
    """The version exists and the ledger's mark says that it is current; the sweep repeats the tag."""
    world = World()
    run = world.upload_version()
    world.end_job(run)

    def refuse(*_: object) -> None:
        raise SubmissionRefusedError("no right to tag")

    monkeypatch.setattr(world.models, "tag", refuse)
    run = world.follow(run)
    current = current_model("digits-cnn", world.ledger)
    assert (RunState.REGISTERED, True) == (run.state, run.evidence["promoted"])
    assert current is not None
    assert (run.model_version, False) == (current.version, current.is_tagged)


@pytest.mark.parametrize(("accuracy", "state"), [(0.97, RunState.REGISTERED), (0.5, RunState.NOT_REGISTERED)])
def test_more_metrics_than_a_row_takes_are_left_out(accuracy: float, state: RunState) -> None:
    """Those that the pipeline names are kept, and the history says how many are not."""
    world = World()
    run = world.upload_version()
    others = {f"class_{number:03}_precision_of_validation": number / 7 for number in range(400)}
    world.write_report(run, {"x" * 101: 1.0, **others, "val_accuracy": accuracy})
    world.jobs.become(run.run_id, "Completed")
    run = world.follow(run)
    assert (state, accuracy) == (run.state, run.metrics["val_accuracy"])
    assert "x" * 101 not in run.metrics
    assert 200 < len(run.metrics) < 400
    [entry] = [entry for entry in world.ledger.history(run.run_id) if entry.action == f"run_{state}"]
    assert f"; {402 - len(run.metrics)} of 402 metrics are not stored" in entry.reason


@pytest.mark.parametrize("rule", ["register", "keep"])
def test_what_happens_after_a_registration_does_not_change_it(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    """Azure ML throttles the tag, and new data close before the next try: the version stays the current one."""
    world = World()
    register = pipeline().register_
    assert register is not None
    world.change_pipeline(register_=register.model_copy(update={"superseded": rule}))
    run = world.upload_version()
    world.end_job(run)
    with monkeypatch.context() as patch:
        patch.setattr(world.models, "tag", _throttle)
        with pytest.raises(ServiceUnavailableError):
            world.follow(run)
    world.change_shard(7)
    run = world.follow(run)
    (model,) = world.models.registered.values()
    assert (RunState.REGISTERED, True, None) == (run.state, run.evidence["promoted"], run.reason)
    assert (True, False) == (CURRENT_TAG in model.tags, "landfall.superseded" in model.tags)


def _throttle(*_: object) -> None:
    raise ServiceUnavailableError("too many requests")


def test_a_model_version_ascends_with_time_and_is_the_same_at_every_try() -> None:
    """Digits only, as Azure ML numbers versions itself."""
    run = World().upload_version()
    later = replace(run, created_at=run.created_at.replace(second=59))
    assert model_version(run) == model_version(replace(run, state=RunState.COMPLETED))
    assert (True, 18, True) == (
        model_version(run).isdigit(),
        len(model_version(run)),
        model_version(run) < model_version(later),
    )


@pytest.mark.parametrize(
    ("details", "hosts", "simulated"),
    [
        ({"hosts": ["node-1", "node-0", "node-0"], "nodes_are_simulated": False}, ["node-0", "node-1"], False),
        ({"hosts": ["x" * 1000] * 5, "nodes_are_simulated": True}, ["x" * 64], True),
        ({"hosts": "node-0"}, [], False),
        ({"hosts": [f"{number:03}" for number in range(500)]}, [f"{number:03}" for number in range(100)], False),
        (None, [], False),
    ],
)
def test_the_history_says_on_what_a_training_says_that_it_ran(details: Any, hosts: list[str], simulated: Any) -> None:
    """Ranks, nodes and hosts of the report; a user's script may write anything there."""
    world = World()
    run = world.upload_version()
    world.write_report(run, {"val_accuracy": 1.0}, details=details)
    world.jobs.become(run.run_id, "Completed")
    world.follow(run)
    [entry] = [entry for entry in world.ledger.history(run.run_id) if entry.action == "run_registered"]
    stated = {name: value for name, value in entry.details.items() if name != "by"}
    assert stated == {"world_size": 2, "num_nodes": 2, "hosts": hosts, "nodes_are_simulated": simulated}
