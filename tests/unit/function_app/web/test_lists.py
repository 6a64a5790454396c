"""Lists of the HTTP API: their filters, and pages that leave nothing out and show nothing twice."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from function_app.sweep.sweep import sweep
from shared.progress import Progress
from tests.support.world import ALL_SHARDS, World, pipeline
from tests.unit.function_app.web.client import call, error


def pages(world: World, path: str, members: str) -> list[list[Any]]:
    """Follow `next` to the end."""
    found = []
    while path:
        answer = call(world, "GET", path).json()
        found.append(answer[members])
        path = answer["next"]
    return found


def three_runs(world: World) -> list[str]:
    """Request three runs; return their ids, the newest first."""
    world.finish(world.upload_version())
    bodies = [{"dataset": "digits", "version": "v1", "overrides": {"epochs": epochs}} for epochs in (5, 6)]
    for body in bodies:
        assert 202 == call(world, "POST", "/api/runs", json=body).status_code
    return [run.run_id for run in world.ledger.runs()]


def test_runs_come_page_by_page() -> None:
    """The last full page is followed by an empty one, since nothing says that it is the last."""
    world = World()
    ids = three_runs(world)
    found = pages(world, "/api/runs?limit=1", "runs")
    assert [*([each] for each in ids), []] == [[run["run_id"] for run in page] for page in found]
    assert [ids[2:]] == [
        [run["run_id"] for run in page] for page in pages(world, "/api/runs?state=registered", "runs")
    ]


def test_a_page_after_a_run_that_is_unknown_is_an_error() -> None:
    """It may be mistyped; an empty page would hide that."""
    assert (404, "not_found") == error(call(World(), "GET", "/api/runs?after=landfall-x-a1"))


@pytest.mark.parametrize("query", ["state=done", "after=a%20b", "limit=0"])
def test_a_filter_that_cannot_be_is_refused(query: str) -> None:
    """The message has the parameter's name."""
    answer = call(World(), "GET", f"/api/runs?{query}")
    assert (422, "invalid_request") == error(answer)
    assert query.partition("=")[0] == answer.json()["errors"][0]["parameter"]


def test_models_are_listed_with_the_runs_that_made_them() -> None:
    """The same by name; a model that no run registered is unknown."""
    world = World()
    assert {"models": [], "next": None} == call(world, "GET", "/api/models").json()
    run = world.finish(world.upload_version())
    [model] = call(world, "GET", "/api/models").json()["models"]
    [version] = model["versions"]
    assert (run.run_id, "digits", "v1", run.model_version) == tuple(
        version[name] for name in ("run_id", "dataset", "dataset_version", "version")
    )
    assert model == call(world, "GET", f"/api/models/{model['name']}").json()
    assert (404, "not_found") == error(call(world, "GET", "/api/models/other"))
    names = {query: len(call(world, "GET", f"/api/models?{query}").json()["models"]) for query in MODEL_FILTERS}
    assert MODEL_FILTERS == names


def test_a_passport_is_there_for_each_version_that_was_registered() -> None:
    """It has the stored passport and the verification, or the problem if it is missing or cannot be read."""
    world = World()
    run = world.finish(world.upload_version())
    path = f"/api/models/digits-cnn/versions/{run.model_version}"
    passport = call(world, "GET", f"{path}/passport").json()
    [stored] = [text for name, text in world.run_outputs.documents.items() if "/passport/" in name]
    assert (json.loads(stored), run.run_id) == (passport, passport["run"]["run_id"])
    found = call(world, "GET", f"{path}/verification").json()
    assert (True, {"ok", "not recomputed"}) == (found["agrees"], {check["result"] for check in found["checks"]})
    for page in ("passport", "verification"):
        other = call(world, "GET", f"/api/models/digits-cnn/versions/7/{page}")
        assert (404, "not_found", "model digits-cnn has no version 7") == (*error(other), other.json()["detail"])
    [name] = [name for name in world.run_outputs.documents if "/passport/" in name]
    world.run_outputs.documents[name] = stored.replace(b'"val_accuracy": 0.97', b'"val_accuracy": 0.98')
    assert False is call(world, "GET", f"{path}/verification").json()["agrees"]
    for damaged in (b"{", b'{"format_version": 1, "digest": "0", "model": []}'):
        world.run_outputs.documents[name] = damaged
        assert (409, "passport_unreadable") == error(call(world, "GET", f"{path}/passport"))


MODEL_FILTERS = {"dataset=digits": 1, "dataset=letters": 0, "after=digits": 1, "after=digits-cnn": 0}


def test_datasets_are_listed_with_the_version_that_was_whole_last() -> None:
    """None at first."""
    world = World()
    before, _ = call(world, "GET", "/api/datasets").json()["datasets"], world.upload_version()
    [after] = call(world, "GET", "/api/datasets").json()["datasets"]
    assert [None] == [each["latest"] for each in before]
    assert ("digits", "v1", "closed") == (after["dataset"], after["latest"]["version"], after["latest"]["state"])
    assert [] == call(world, "GET", "/api/datasets?after=digits").json()["datasets"]
    assert [] == call(world, "GET", "/api/datasets?pipeline=other").json()["datasets"]
    assert [after] == call(world, "GET", f"/api/datasets?pipeline={after['pipeline']}").json()["datasets"]


def test_datasets_and_models_come_page_by_page() -> None:
    """They are sorted by name."""
    world = World()
    register = pipeline().register_
    assert register is not None
    world.add_pipelines("signs", register_=register.model_copy(update={"model": "signs-cnn"}))
    for dataset in ("digits", "signs"):
        world.finish(world.train(version="v1", dataset=dataset))
    found = pages(world, "/api/datasets?limit=1", "datasets")
    assert [["digits"], ["signs"]] == [[each["dataset"] for each in page] for page in found]
    found = pages(world, "/api/models?limit=1", "models")
    assert [["digits-cnn"], ["signs-cnn"]] == [[each["name"] for each in page] for page in found]


def test_the_versions_of_a_dataset_come_page_by_page() -> None:
    """Those that are open too, in descending order."""
    world = World()
    for version in ("v1", "v3"):
        world.upload_shards(*ALL_SHARDS, version=version)
    world.upload_shards(ALL_SHARDS[0], version="v2")
    found = pages(world, "/api/datasets/digits?limit=2", "versions")
    assert [["v3", "v2"], ["v1"]] == [[each["version"] for each in page] for page in found]
    assert ["closed", "open"] == [each["state"] for each in found[0]]
    closed = pages(world, "/api/datasets/digits?limit=1&state=closed", "versions")
    assert [["v3"], ["v1"]] == [[each["version"] for each in page] for page in closed]


def test_a_dataset_of_no_pipeline_is_unknown() -> None:
    """A dataset that has a pipeline and no data is known."""
    world = World()
    assert (404, "not_found") == error(call(world, "GET", "/api/datasets/letters"))
    assert [] == call(world, "GET", "/api/datasets/digits").json()["versions"]


def test_a_mistyped_name_is_answered_with_the_one_meant() -> None:
    """A dataset, whatever is asked about it, and a model."""
    world = World()
    world.finish(world.upload_version())
    body = {"dataset": "digit", "version": "v1"}
    answers = [
        call(world, "GET", "/api/datasets/digts"),
        call(world, "GET", "/api/datasets/digit/v1"),
        call(world, "POST", "/api/runs", json=body),
        call(world, "GET", "/api/models/digit-cnn"),
    ]
    said = [answer.json()["detail"].partition("; ")[2] for answer in answers]
    known = "there are pipelines for digits"
    assert ["did you mean digits?", known, known, "did you mean digits-cnn?"] == said


def test_shards_come_page_by_page_with_their_reasons() -> None:
    """They are sorted by split and position; one state or split can be selected."""
    world = World()
    world.upload_shards(ALL_SHARDS[0], ALL_SHARDS[2])
    world.deliver(world.put(ALL_SHARDS[1], b"<html>"))
    path = "/api/datasets/digits/v1/shards"
    found = pages(world, f"{path}?limit=1", "shards")
    assert [("train", 0), ("train", 1), ("validation", 0)] == [(one["split"], one["index"]) for [one] in found]
    [[rejected]] = pages(world, f"{path}?state=rejected", "shards")
    assert (ALL_SHARDS[1], "not_a_shard") == (rejected["name"], rejected["reasons"][0]["code"])
    assert [[]] == pages(world, f"{path}?state=rejected&split=validation", "shards")
    assert [["train", "train"]] == [
        [one["split"] for one in page] for page in pages(world, f"{path}?split=train", "shards")
    ]


def test_shards_of_an_unknown_version_are_not_found() -> None:
    """A mistyped version or dataset is an error, as is a place that none has."""
    world = World()
    assert (404, "not_found") == error(call(world, "GET", "/api/datasets/digits/v1/shards"))
    assert (404, "not_found") == error(call(world, "GET", "/api/datasets/letters/v1/shards"))
    assert (422, "invalid_request") == error(call(world, "GET", "/api/datasets/digits/v1/shards?after=train"))


def test_the_metrics_of_a_run_are_those_of_its_log_and_then_of_its_report() -> None:
    """One entry for each epoch that has ended."""
    world = World()
    run = world.upload_version()
    world.jobs.become(run.run_id, "Running")
    world.follow(run)
    world.jobs.logs[run.run_id] = Progress(epoch=1, epochs=3, step=10, loss=0.5, accuracy=0.5).to_line()
    before = call(world, "GET", f"/api/runs/{run.run_id}/metrics").json()
    world.end_job(run)
    world.write_report(
        run, {"val_accuracy": 0.97}, epochs=({"epoch": 1.0, "loss": 0.25}, {"epoch": 2.0, "loss": 0.125})
    )
    world.follow(run)
    after = call(world, "GET", f"/api/runs/{run.run_id}/metrics").json()
    assert ([1], 0.5, "running") == (
        [e["epoch"] for e in before["epochs"]],
        before["newest"]["loss"],
        before["state"],
    )
    assert ("registered", [0.25, 0.125]) == (after["state"], [epoch["loss"] for epoch in after["epochs"]])
    assert (404, "not_found") == error(call(world, "GET", "/api/runs/landfall-x-a1/metrics"))


def test_pipelines_come_page_by_page() -> None:
    """Those out of service first; of one state or dataset."""
    world = World()
    world.services = replace(world.services, out_of_service={"letters": ("letters.yaml: data: what it lacks",)})
    found = pages(world, "/api/pipelines?limit=1", "pipelines")
    assert ["letters", "digits"] == [one["dataset"] for [one] in found]
    assert ["digits"] == [one["dataset"] for [one] in pages(world, "/api/pipelines?state=in_service", "pipelines")]
    assert ["letters"] == [one["dataset"] for [one] in pages(world, "/api/pipelines?dataset=letters", "pipelines")]


def test_dead_letters_come_page_by_page_and_by_state_and_source() -> None:
    """This holds even if letters of a page are replayed before the next page is requested."""
    world = World()
    for number in range(3):
        world.give_up(f'{{"broken": {number}}}')
    sweep(world.services)
    names = [letter.dead_letter_id for letter in world.ledger.dead_letters()]
    found = pages(world, "/api/dead-letters?limit=1", "dead_letters")
    assert [[name] for name in names] == [[letter["dead_letter_id"] for letter in page] for page in found]
    first = call(world, "GET", "/api/dead-letters?limit=1&state=waiting").json()
    assert 202 == call(world, "POST", f"/api/dead-letters/{names[0]}/replay").status_code
    left = [letter["dead_letter_id"] for page in pages(world, first["next"], "dead_letters") for letter in page]
    assert names[1:] == left
    counts = {
        query: len(call(world, "GET", f"/api/dead-letters?{query}").json()["dead_letters"])
        for query in ("state=replayed", "state=waiting", "source=shard-uploaded", "source=notification")
    }
    assert {"state=replayed": 1, "state=waiting": 2, "source=shard-uploaded": 3, "source=notification": 0} == counts
    assert (404, "not_found") == error(call(world, "GET", "/api/dead-letters?after=abc"))
    assert (422, "invalid_request") == error(call(world, "GET", "/api/dead-letters?state=dead"))
