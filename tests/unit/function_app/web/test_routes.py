"""The routes of the HTTP API: versions, runs, history, sweep and dead letters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest

from function_app.domain.events import SHARD_UPLOADED
from function_app.domain.records import Undelivered
from function_app.sweep.requested import handle_sweep_request
from function_app.sweep.sweep import sweep
from function_app.testing.azure_ml import MemoryJobs
from function_app.testing.stores import MemoryDocumentStore
from tests.support.ledger_records import NOON
from tests.support.synthetic import SYNTHETIC, synthetic_world
from tests.support.world import ALL_SHARDS, TRAIN_SHARDS, World, pipeline, shard_content
from tests.unit.function_app.web.client import call, error


def test_an_open_version_says_which_shards_are_missing_and_why_others_were_rejected() -> None:
    """The owner of the data can see what to upload."""
    world = World()
    world.upload_shards(TRAIN_SHARDS[0])
    world.deliver(world.put(TRAIN_SHARDS[1], b"<html>"))
    body = call(world, "GET", "/api/datasets/digits/v1").json()
    train = body["splits"]["train"]
    assert ("open", 2, 1, ["train-00001-of-00002"]) == (
        body["state"],
        train["num_shards"],
        train["accepted"],
        train["missing"],
    )
    (rejected,) = train["rejected"]
    assert (TRAIN_SHARDS[1], "not_a_shard", 0) == (
        rejected["shard"],
        rejected["reasons"][0]["code"],
        rejected["reasons"][0]["byte_offset"],
    )
    assert ["validation-*: no shard of this split has arrived yet"] == body["splits"]["validation"]["missing"]


def test_a_split_has_statistics_of_its_accepted_shards() -> None:
    """Rejected shards do not count; their reasons are complete."""
    world = World()
    contents = {TRAIN_SHARDS[0]: shard_content(1, 1, 7), TRAIN_SHARDS[1]: shard_content(2, 99)}
    for name, content in contents.items():
        world.deliver(world.put(name, content))
    train = call(world, "GET", "/api/datasets/digits/v1").json()["splits"]["train"]
    statistics = {
        "num_records": 3,
        "num_bytes": len(contents[TRAIN_SHARDS[0]]) - 3 * 16,
        "size_bytes": len(contents[TRAIN_SHARDS[0]]),
        "label_feature": "label",
        "labels": {"1": 2, "7": 1},
        "other_labels": 0,
        "features": {
            "label": {
                "kind": "int64",
                "num_present": 3,
                "minimum": 1.0,
                "maximum": 7.0,
                "num_distinct": 2,
                "most_frequent": {"1": 2, "7": 1},
                "other": 0,
            },
            "image": {
                "kind": "float",
                "num_present": 3,
                "minimum": 0.0,
                "maximum": 1.0,
                "num_distinct": 0,
                "most_frequent": {},
                "other": 0,
            },
        },
    }
    assert (statistics, 1) == (train["statistics"], train["num_rejected"])
    reason = {"code", "message", "record_index", "byte_offset", "feature", "expected", "seen"}
    (seen,) = train["rejected"][0]["reasons"]
    assert (reason, 1, len(shard_content(2)), "label", "99") == (
        set(seen),
        seen["record_index"],
        seen["byte_offset"],
        seen["feature"],
        seen["seen"],
    )


def test_a_closed_version_has_its_generation_and_runs() -> None:
    """Its generation, shards and runs are listed."""
    world = World()
    run = world.upload_version()
    body = call(world, "GET", "/api/datasets/digits/v1").json()
    assert ("closed", 1, 3, run.run_id) == (
        body["state"],
        body["generation"]["number"],
        body["generation"]["num_shards"],
        body["runs"][0]["run_id"],
    )


def test_a_run_that_waits_says_for_what_everywhere() -> None:
    """Its version, its own answer and the list say so; an active run waits for nothing."""
    world = World()
    first, second = world.train(), world.train(version="v2")
    place = f"waits for run {first.run_id}; it is next"
    listed = call(world, "GET", "/api/runs").json()["runs"]
    assert ([place, None], place, place) == (
        [run["waiting"] for run in listed],
        call(world, "GET", f"/api/runs/{second.run_id}").json()["waiting"],
        call(world, "GET", "/api/datasets/digits/v2").json()["runs"][0]["waiting"],
    )


def test_a_run_shows_how_it_ended_and_its_notifications() -> None:
    """Model, metrics, and one notification for each recipient."""
    world = World()
    run = world.upload_version()
    world.end_job(run)
    world.follow(run)
    body = call(world, "GET", f"/api/runs/{run.run_id}").json()
    assert ("registered", "digits-cnn", {"val_accuracy": 0.97}) == (
        body["state"],
        body["model_name"],
        body["metrics"],
    )
    assert {"report", "model", "checkpoints"} == set(body["outputs"])
    assert body["outputs"]["model"].endswith(
        f"/datastores/landfall_runs/paths/digits/v1/{body['logical_run']}/a1/model"
    )
    assert [("topic", "sent"), ("webhook:LANDFALL_WEBHOOK_PEOPLE", "sent")] == [
        (one["recipient"], one["state"]) for one in body["notifications"]
    ]


def test_runs_are_listed_newest_first_and_bounded() -> None:
    """Runs of all datasets, or of one."""
    world = World()
    first = world.upload_version()
    call(world, "POST", "/api/runs", json={"dataset": "digits", "version": "v1", "overrides": {"epochs": 5}})
    newest = [run["run_id"] for run in call(world, "GET", "/api/runs").json()["runs"]]
    assert (2, first.run_id) == (len(newest), newest[1])
    assert [newest[0]] == [run["run_id"] for run in call(world, "GET", "/api/runs?limit=1").json()["runs"]]
    assert [] == call(world, "GET", "/api/runs?dataset=letters").json()["runs"]


def test_the_same_request_twice_leads_to_one_run() -> None:
    """202 for a new run, 200 for the same request again; both have its location."""
    world = World()
    world.finish(world.upload_version())
    body = {"dataset": "digits", "version": "v1", "overrides": {"epochs": 5}}
    answers = [call(world, "POST", "/api/runs", json=body) for _ in range(2)]
    run_id = answers[0].json()["run_id"]
    assert [202, 200] == [answer.status_code for answer in answers]
    assert [f"/api/runs/{run_id}"] * 2 == [answer.headers["Location"] for answer in answers]
    world.serve_requests()
    assert "submitted" == call(world, "GET", f"/api/runs/{run_id}").json()["state"]


def test_a_run_on_synthetic_data_needs_no_version_and_one_on_data_does() -> None:
    """The lineage of synthetic data says so; a request for data without a version is refused."""
    body = call(synthetic_world(), "POST", "/api/runs", json={"dataset": SYNTHETIC}).json()
    assert (SYNTHETIC, "synthetic", 1) == (body["dataset"], body["version"], body["generation"])
    assert (422, "version_name") == error(call(World(), "POST", "/api/runs", json={"dataset": "digits"}))


def test_a_run_on_an_incomplete_version_is_a_conflict_that_lists_missing_shards() -> None:
    """The caller can upload them and repeat the request."""
    world = World()
    world.upload_shards(TRAIN_SHARDS[0])
    answer = call(world, "POST", "/api/runs", json={"dataset": "digits", "version": "v1"})
    assert (409, "version_not_whole") == error(answer)
    assert "train-00001-of-00002" == answer.json()["errors"][0]["detail"]


class Stubborn(MemoryJobs):
    """Jobs that do not end at once when they are canceled."""

    def cancel(self, name: str) -> None:
        """Record the request only."""
        self.become(name, "CancelRequested")


def test_a_run_that_ends_at_once_is_answered_with_200_and_again_the_same() -> None:
    """The response is the run; repeating the request changes nothing."""
    world = World()
    run = world.upload_version()
    answers = [call(world, "POST", f"/api/runs/{run.run_id}/cancel") for _ in range(2)]
    assert [(200, "canceled")] * 2 == [(answer.status_code, answer.json()["state"]) for answer in answers]
    assert 1 == len(world.topic.received)


def test_a_job_that_takes_its_time_is_answered_with_202() -> None:
    """The response shows that the cancellation was requested."""
    world = World(jobs=Stubborn())
    run = world.upload_version()
    answer = call(world, "POST", f"/api/runs/{run.run_id}/cancel")
    assert (202, f"/api/runs/{run.run_id}", "submitted", True) == (
        answer.status_code,
        answer.headers["Location"],
        answer.json()["state"],
        answer.json()["cancel_requested_at"] is not None,
    )


@pytest.mark.parametrize(
    ("run_id", "status", "code"), [("landfall-x-a1", 404, "not_found"), (None, 409, "run_has_ended")]
)
def test_what_cannot_be_canceled_is_an_error(run_id: str | None, status: int, code: str) -> None:
    """An unknown run, or one that has ended otherwise."""
    world = World()
    run = world.finish(world.upload_version())
    answer = call(world, "POST", f"/api/runs/{run_id or run.run_id}/cancel")
    assert (status, code) == (answer.status_code, answer.json()["code"])


def forced(world: World, **request: Any) -> tuple[int, str]:
    """Return status and run id of a forced request."""
    body = {"dataset": "digits", "version": "v1", "force": True}
    answer = call(world, "POST", "/api/runs", json=body, **request)
    return answer.status_code, answer.json().get("run_id", "")


def test_a_forced_call_under_the_same_key_is_the_same_run() -> None:
    """202, then 200 for the same; without a key each request starts a run."""
    world = World()
    world.finish(world.upload_version())
    keyed = [forced(world, headers={"Idempotency-Key": "abc"}) for _ in range(2)]
    bare = [forced(world) for _ in range(2)]
    assert [202, 200, 202, 202] == [status for status, _ in (*keyed, *bare)]
    assert 3 == len({run_id for _, run_id in (*keyed, *bare)})


def keyed(world: World, key: str, **body: Any) -> Any:
    """Return the answer to a request for digits/v1 with an idempotency key."""
    request = {"dataset": "digits", "version": "v1", **body}
    return call(world, "POST", "/api/runs", json=request, headers={"Idempotency-Key": key})


@pytest.mark.parametrize("force", [False, True])
def test_a_key_that_was_used_for_another_request_is_refused(*, force: bool) -> None:
    """Nothing is started, and the message names the run of the first request."""
    world = World()
    world.finish(world.upload_version())
    first = keyed(world, "abc", overrides={"epochs": 5}, force=force)
    others = [{"overrides": {"epochs": 6}, "force": force}, {"overrides": {"epochs": 5}, "force": not force}]
    answers = [keyed(world, "abc", **other) for other in others]
    assert [(422, "idempotency_key_reused")] * 2 == [error(answer) for answer in answers]
    assert first.json()["run_id"] in answers[0].json()["detail"]
    assert 2 == len(world.ledger.runs())


def test_a_key_leads_to_its_run_whatever_has_happened_since() -> None:
    """A request that is repeated after the data changed does not train on the new data."""
    world = World()
    world.finish(world.upload_version())
    first = keyed(world, "abc", overrides={"epochs": 5})
    world.serve_requests()
    world.change_shard(5)
    world.change_pipeline(train=pipeline().train.model_copy(update={"overrides": {}}))
    again = keyed(world, "abc", overrides={"epochs": 5})
    assert (202, 200, first.json()["run_id"]) == (first.status_code, again.status_code, again.json()["run_id"])
    assert (422, "override_not_allowed") == error(keyed(world, "def", overrides={"epochs": 5}))


def test_a_refused_request_leaves_its_key_free() -> None:
    """The caller corrects the request and sends it again."""
    world = World()
    world.finish(world.upload_version())
    answers = [keyed(world, "abc", overrides={"epochs": epochs}) for epochs in (1000, 5)]
    assert [422, 202] == [answer.status_code for answer in answers]


def test_a_key_whose_caller_died_before_its_run_was_added_is_served() -> None:
    """The repeated request adds the run."""
    world = World()
    world.finish(world.upload_version())
    first = keyed(world, "abc", overrides={"epochs": 5})
    del world.ledger.run_rows[first.json()["run_id"]]
    again = keyed(world, "abc", overrides={"epochs": 5})
    assert (202, first.json()["run_id"]) == (again.status_code, again.json()["run_id"])


def test_of_two_requests_with_one_key_at_the_same_moment_one_wins() -> None:
    """The slower one sees no claim when it looks, and then finds its key taken."""
    world = World()
    world.finish(world.upload_version())

    class Overtaken(MemoryDocumentStore):
        def write_once(self, path: str, content: bytes) -> bool:
            world.services = replace(world.services, documents=documents)
            assert 202 == keyed(world, "abc", overrides={"epochs": 6}).status_code
            return documents.write_once(path, content)

    documents, overtaken = world.documents, Overtaken()
    overtaken.documents = documents.documents
    world.services = replace(world.services, documents=overtaken)
    assert (422, "idempotency_key_reused") == error(keyed(world, "abc", overrides={"epochs": 5}))
    assert 2 == len(world.ledger.runs())


def test_a_key_is_bounded() -> None:
    """It becomes part of names and of the history."""
    world = World()
    world.upload_version()
    assert [422, 422] == [forced(world, headers={"Idempotency-Key": key})[0] for key in ("x" * 129, "a b")]


def test_a_version_lists_the_generations_that_are_superseded() -> None:
    """The latest closing is the version; earlier ones are listed."""
    world = World()
    world.upload_version()
    world.change_shard(5)
    world.change_shard(6)
    answer = call(world, "GET", "/api/datasets/digits/v1").json()
    assert (3, [2, 1]) == (answer["generation"]["number"], [each["number"] for each in answer["superseded"]])


def test_quarantined_data_are_refused_with_409() -> None:
    """The message names the run that failed because of them."""
    world = World()
    run = world.upload_version()
    world.jobs.become(run.run_id, "Failed", error="exited with status code 10.")
    world.follow(run)
    body = {"dataset": "digits", "version": "v1", "overrides": {"epochs": 5}}
    answer = call(world, "POST", "/api/runs", json=body)
    assert (409, "version_quarantined", True) == (
        answer.status_code,
        answer.json()["code"],
        run.run_id in answer.json()["detail"],
    )


def test_a_bad_script_is_answered_with_its_findings() -> None:
    """Status, code, and one detail for each finding."""
    world = World()
    world.finish(world.upload_version())
    world.change_pipeline(train=pipeline().train.model_copy(update={"script": "scripts/mine.py"}))
    script = b"import horovod.tensorflow as hvd\nprint(hvd.rank())\n"
    world.services = replace(world.services, read_script=lambda _: script)
    answer = call(world, "POST", "/api/runs", json={"dataset": "digits", "version": "v1"})
    refusal = answer.json()
    errors = [{"detail": "scripts/mine.py:2: missing_init: rank is called, but hvd.init() never is"}]
    assert (422, "script_refused", errors) == (answer.status_code, refusal["code"], refusal["errors"])


def test_the_form_of_a_subject_decides_its_kind() -> None:
    """A run id has no slash, a version one, a blob two."""
    world = World()
    run = world.upload_version()
    paths = [run.run_id, "digits/v1", f"digits/v1/{TRAIN_SHARDS[0]}"]
    assert ["run", "version", "blob"] == [call(world, "GET", f"/api/why/{path}").json()["kind"] for path in paths]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\u2028", " ", "%"])
def test_the_history_of_a_blob_with_any_name_can_be_asked_for(end: str) -> None:
    """A line break in a name is a character like any other."""
    world = World()
    path = world.put(f"{TRAIN_SHARDS[0]}{end}x")
    world.deliver(path)
    body = call(world, "GET", f"/api/why/{quote(path)}").json()
    assert (path, 1) == (body["subject"], len(body["lines"]))


def test_a_history_has_its_entries_and_what_is_awaited() -> None:
    """Entries are in order and have details."""
    world = World()
    world.upload_shards(TRAIN_SHARDS[0])
    body = call(world, "GET", "/api/why/digits/v1").json()
    assert (["shard_accepted"], 0, 1) == (
        [line["action"] for line in body["lines"]],
        body["num_omitted"],
        len(body["awaited"]),
    )
    assert {"etag", "crc32c"} <= set(body["lines"][0]["details"])


def test_an_unknown_subject_is_not_found() -> None:
    """The error has the usual shape."""
    assert (404, "not_found") == error(call(World(), "GET", "/api/why/unknown"))


def world_with_letter() -> tuple[World, str]:
    """Return a world with one dead letter in its ledger, and the letter's id."""
    world = World()
    return world, add_letter(world)


def add_letter(world: World) -> str:
    """Let a world have a dead letter; return its id."""
    payload = '{"subject": "/blobServices/default/containers/datasets/blobs/digits/v1/x"}'
    world.undelivered.lying.append(
        Undelivered(
            source=SHARD_UPLOADED, payload=payload, identity=payload, error="", tries=5, died_at=NOON, death="1"
        )
    )
    sweep(world.services)
    return world.ledger.dead_letters()[0].dead_letter_id


def test_a_sweep_on_demand_is_queued_and_then_says_what_it_did() -> None:
    """It does what the timer's sweep does, in a function of its own: an HTTP request ends after 230 seconds."""
    world = World()
    for name in ALL_SHARDS:
        world.put(name)
    world.clock.move(minutes=5)
    before, asked = call(world, "GET", "/api/reconcile"), call(world, "POST", "/api/reconcile")
    waiting = call(world, "GET", asked.headers["Location"]).json()
    handle_sweep_request(world.sweep_requests.messages[0].encode(), world.services)
    ended = call(world, "GET", asked.headers["Location"]).json()
    assert (404, 202, "queued", None) == (before.status_code, asked.status_code, waiting["state"], waiting["report"])
    assert asked.json() == waiting
    assert (waiting["sweep_id"], "done", 3, []) == (
        ended["sweep_id"],
        ended["state"],
        ended["report"]["shards_missed"],
        ended["report"]["problems"],
    )


def test_dead_letters_are_listed_without_their_payload() -> None:
    """Only the request for one letter shows its payload."""
    world, name = world_with_letter()
    (letter,) = call(world, "GET", "/api/dead-letters").json()["dead_letters"]
    assert (name, "digits/v1/x", 5, False) == (
        letter["dead_letter_id"],
        letter["subject"],
        letter["tries"],
        "payload" in letter,
    )


def test_a_dead_letter_is_shown_with_its_payload() -> None:
    """The payload is unchanged."""
    world, name = world_with_letter()
    assert "/blobServices/" in call(world, "GET", f"/api/dead-letters/{name}").json()["payload"]


def test_a_replay_is_answered_with_the_letter() -> None:
    """The message is in its queue again."""
    world, name = world_with_letter()
    answer = call(world, "POST", f"/api/dead-letters/{name}/replay")
    assert (202, f"/api/dead-letters/{name}", "replayed", 1, 1) == (
        answer.status_code,
        answer.headers["Location"],
        answer.json()["state"],
        answer.json()["num_replays"],
        len(world.uploads.messages),
    )


@pytest.mark.parametrize(("method", "suffix"), [("GET", ""), ("POST", "/replay")])
def test_an_unknown_letter_is_not_found(method: str, suffix: str) -> None:
    """The error has the usual shape."""
    assert (404, "not_found") == error(call(World(), method, f"/api/dead-letters/{'0' * 16}{suffix}"))


def test_a_malformed_letter_id_is_refused() -> None:
    """Ids are hexadecimal."""
    assert (422, "invalid_request") == error(call(World(), "GET", "/api/dead-letters/..%2e"))
