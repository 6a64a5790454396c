"""Mistakes in a pipeline's file: nothing is held or paid for, and the corrected file trains without force."""

from __future__ import annotations

from typing import Any

import pytest

from function_app.config.registration import Register, Requirement
from function_app.domain.errors import ConfigurationError
from function_app.domain.run_states import RunState
from function_app.runs.requests import request_run
from tests.support.world import ALL_SHARDS, TRAIN_SHARDS, VERSION, World, pipeline, shard_content
from tests.unit.function_app.web.client import call

HIGH = "num_classes: 2, but labels go up to 9"
UNMET = Register(model="digits-cnn", require=(Requirement(metric="val_auc", at_least=0.9),))
NO_AUC = (
    "register.require.0: the training reports no val_auc; it reports loss, accuracy, top5_accuracy, val_loss, "
    "val_accuracy, val_top5_accuracy; val_auc needs task: binary"
)


def with_options(**options: Any) -> dict[str, Any]:
    """Return a pipeline's train section with other options."""
    train = pipeline().train
    return {"train": train.model_copy(update={"options": type(train.options)(**vars(train.options) | options)})}


def mistaken(**changes: Any) -> World:
    """A whole version, with labels from 0 to 9, of a pipeline with a mistake."""
    world = World()
    world.change_pipeline(**changes)
    world.put(TRAIN_SHARDS[0], shard_content(*range(10)))
    world.deliver(f"{VERSION}/{TRAIN_SHARDS[0]}")
    world.upload_shards(*ALL_SHARDS[1:])
    return world


MISTAKES = [
    (with_options(num_classes=2), HIGH),
    (
        with_options(image_feature="pixels"),
        'image_feature: the data has no feature "pixels"; data.features names image, label',
    ),
    ({"register_": UNMET}, NO_AUC),
    (
        with_options(num_lanes=3),
        "num_lanes: 3 lanes cannot be shared equally by 2 processes; use a multiple of 2, or 0",
    ),
    (with_options(model_name="ResNet51"), 'model_name: there is no model "ResNet51"; did you mean ResNet50?'),
    (
        with_options(validation_split="test"),
        'validation_split: the data have no split "test"; they have train, validation',
    ),
    (
        with_options(model_name="VGG16"),
        (
            "model_name: VGG16 needs images of at least 32 x 32 pixels, and they have 2 x 2; set image_height and "
            "image_width, or use another model"
        ),
    ),
    (
        with_options(per_process_batch_size=20),
        "per_process_batch_size: 20 on 2 processes needs 40 records for each step, but split train has 21",
    ),
]


@pytest.mark.parametrize(("changes", "problem"), MISTAKES)
def test_a_closing_submits_nothing_and_says_what_to_change(changes: dict[str, Any], problem: str) -> None:
    """Once the file is corrected, the same version is trained on without force."""
    world = mistaken(**changes)
    world.serve_requests()
    failed = world.only_run()
    assert (RunState.FAILED, "configuration", "stop") == (failed.state, failed.failure_class, failed.remedy)
    assert problem == failed.reason
    assert [] == world.jobs.submissions
    assert "version_quarantined" not in world.actions(VERSION)
    (sent,) = world.topic.received
    assert problem in sent.content["text"]
    assert f"correct the pipeline's file, then: landfall submit {VERSION}" in sent.content["text"]
    world.change_pipeline()
    run, is_new = request_run(VERSION, {}, trigger="http", services=world.services)
    world.serve_requests()
    assert (True, RunState.SUBMITTED) == (is_new, world.stands(run).state)


@pytest.mark.parametrize(("changes", "problem"), MISTAKES)
@pytest.mark.parametrize("force", [False, True])
def test_a_request_is_refused_with_what_to_change(changes: dict[str, Any], problem: str, *, force: bool) -> None:
    """Force trains again; it does not make a training work that cannot."""
    world = mistaken(**changes)
    body = {"dataset": "digits", "version": "v1", "force": force}
    answer = call(world, "POST", "/api/runs", json=body)
    body = answer.json()
    details = [part["detail"] for part in body["errors"]]
    assert (422, "configuration", [problem]) == (answer.status_code, body["code"], details)


def test_an_override_is_checked_with_the_data() -> None:
    """What a caller sets may fit the pipeline's limits and still not the data."""
    world = mistaken()
    limits = pipeline().train.overrides
    epochs = limits["epochs"]
    train = pipeline().train.model_copy(update={"overrides": {**limits, "per_process_batch_size": epochs}})
    world.change_pipeline(train=train)
    with pytest.raises(ConfigurationError, match="per_process_batch_size: 100 on 2 processes needs 200 records"):
        request_run(VERSION, {"per_process_batch_size": 100}, trigger="http", services=world.services)


@pytest.mark.parametrize("code", [11, 19])
def test_what_only_the_training_sees_is_the_configurations_too(code: int) -> None:
    """A model that does not exist is known where Keras is; the same request trains again afterwards."""
    world = World()
    run = world.upload_version()
    world.jobs.become(run.run_id, "Failed", error=f"exited with status code {code}.")
    world.follow(run)
    failed = world.stands(run)
    assert ("configuration", "stop") == (failed.failure_class, failed.remedy)
    assert "version_quarantined" not in world.actions(VERSION)
    _, is_new = request_run(VERSION, {}, trigger="http", services=world.services)
    assert is_new


def test_a_metric_that_a_report_lacks_can_be_corrected_without_force() -> None:
    """A script of one's own reports what it likes, so the gate is the first to know."""
    world = World()
    run = world.upload_version()
    world.end_job(run, other=0.5)
    ended = world.follow(run)
    assert (RunState.NOT_REGISTERED, "configuration") == (ended.state, ended.failure_class)
    _, is_new = request_run(VERSION, {}, trigger="http", services=world.services)
    assert is_new


def test_a_bound_that_is_not_met_is_no_mistake_of_the_file() -> None:
    """The same request leads to the same run then."""
    world = World()
    run = world.upload_version()
    world.end_job(run, val_accuracy=0.5)
    assert (RunState.NOT_REGISTERED, None) == (world.follow(run).state, world.stands(run).failure_class)
    _, is_new = request_run(VERSION, {}, trigger="http", services=world.services)
    assert not is_new
