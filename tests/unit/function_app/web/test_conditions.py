"""Keys and conditions of requests: what is repeated is done once, and what has changed since is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from function_app.domain.errors import ServiceUnavailableError
from function_app.runs.requests import KEYS as FOLDER
from function_app.testing.stores import MemoryDocumentStore
from tests.support.world import ALL_SHARDS, World
from tests.unit.function_app.web.client import call, error
from tests.unit.function_app.web.test_routes import world_with_letter

KEY = {"Idempotency-Key": "abc"}


def test_an_action_that_is_repeated_under_its_key_is_done_once() -> None:
    """Its answer is the first one again: status, body and location."""
    world, name = world_with_letter()
    path = f"/api/dead-letters/{name}/replay"
    first, again, bare = (call(world, "POST", path, headers=headers) for headers in (KEY, KEY, {}))
    assert (202, first.status_code, first.json(), first.headers["Location"]) == (
        first.status_code,
        again.status_code,
        again.json(),
        again.headers["Location"],
    )
    assert (2, 2) == (bare.json()["num_replays"], len(world.uploads.messages))


def test_a_key_is_refused_for_everything_but_its_request() -> None:
    """Another path, query or body, and a run as well; nothing is done."""
    world, name = world_with_letter()
    run = world.upload_version()
    call(world, "POST", "/api/reconcile", headers=KEY)
    body = {"dataset": "digits", "version": "v1", "overrides": {"epochs": 5}}
    others: list[tuple[str, dict[str, Any]]] = [
        (f"/api/dead-letters/{name}/replay", {}),
        (f"/api/runs/{run.run_id}/cancel", {}),
        ("/api/reconcile", {"content": b"x"}),
        ("/api/reconcile?code=1", {}),
        ("/api/runs", {"json": body}),
    ]
    refusals = [error(call(world, "POST", path, headers=KEY, **sent)) for path, sent in others]
    assert [(422, "idempotency_key_reused")] * len(others) == refusals
    assert (0, 1, "submitted") == (len(world.uploads.messages), len(world.ledger.runs()), world.stands(run).state)


def test_a_refused_action_leaves_its_key_free() -> None:
    """The caller corrects the request and sends it again."""
    world, name = world_with_letter()
    refused = call(world, "POST", f"/api/dead-letters/{'0' * 16}/replay", headers=KEY)
    assert [404, 202] == [
        refused.status_code,
        call(world, "POST", f"/api/dead-letters/{name}/replay", headers=KEY).status_code,
    ]


def test_an_action_whose_answer_was_not_kept_is_done_again() -> None:
    """The process died in between, or storage did not answer: no key stays locked."""
    world, name = world_with_letter()

    class Dying(MemoryDocumentStore):
        def write_once(self, path: str, content: bytes) -> bool:
            if path.count("-") > 1:
                raise ServiceUnavailableError("storage did not answer")
            return super().write_once(path, content)

    dying = Dying()
    path = f"/api/dead-letters/{name}/replay"
    alive, world.services = world.services, replace(world.services, documents=dying)
    assert 503 == call(world, "POST", path, headers=KEY).status_code
    world.documents.documents.update(dying.documents)
    world.services = alive
    answers = [call(world, "POST", path, headers=KEY).json()["num_replays"] for _ in range(2)]
    assert [2, 2] == answers


def test_a_key_that_storage_has_forgotten_is_new() -> None:
    """The rule of the deployment deletes claim and answer by their age; an answer that is left is replaced."""
    world, name = world_with_letter()
    path = f"/api/dead-letters/{name}/replay"
    assert 1 == call(world, "POST", path, headers=KEY).json()["num_replays"]
    [claim] = [path for path in world.documents.documents if path.startswith(FOLDER) and path.count("-") == 1]
    world.documents.delete(claim)
    assert [2, 2] == [call(world, "POST", path, headers=KEY).json()["num_replays"] for _ in range(2)]
    assert all(path.startswith(FOLDER) for path in world.documents.documents)


def test_a_malformed_key_is_refused_by_every_post() -> None:
    """It becomes part of names."""
    world, name = world_with_letter()
    for path in ("/api/reconcile", f"/api/dead-letters/{name}/replay"):
        answer = call(world, "POST", path, headers={"Idempotency-Key": "a b"})
        assert (422, "invalid_request") == error(answer)
        assert "Idempotency-Key" == answer.json()["errors"][0]["parameter"]


def test_what_has_not_changed_is_not_sent_again() -> None:
    """304 without a body until a run moves; weak tags and lists of tags name it too."""
    world = World()
    run = world.upload_version()
    path = f"/api/runs/{run.run_id}"
    shown = call(world, "GET", path)
    tag = shown.headers["ETag"]
    for condition in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        same = call(world, "GET", path, headers={"If-None-Match": condition})
        assert (304, b"", tag) == (same.status_code, same.content, same.headers["ETag"])
    world.jobs.become(run.run_id, "Running")
    world.follow(run)
    moved = call(world, "GET", path, headers={"If-None-Match": tag})
    assert (200, "running") == (moved.status_code, moved.json()["state"])
    assert moved.headers["ETag"] != tag


@pytest.mark.parametrize("kind", ["run", "version", "letter"])
def test_an_action_on_what_has_changed_since_is_refused(kind: str) -> None:
    """412, and nothing is done; with the present tag it is done."""
    world, letter = world_with_letter()
    run = world.upload_version()
    resource, action = {
        "run": (f"/api/runs/{run.run_id}", "cancel"),
        "version": ("/api/datasets/digits/v1", "release"),
        "letter": (f"/api/dead-letters/{letter}", "replay"),
    }[kind]
    tag = call(world, "GET", resource).headers["ETag"]
    stale = [f'"{"0" * 32}"', f"W/{tag}"]
    for condition in stale:
        refused = call(world, "POST", f"{resource}/{action}", headers={"If-Match": condition, **KEY})
        assert (412, "changed_meanwhile") == error(refused)
    assert tag == call(world, "GET", resource).headers["ETag"]
    done = call(world, "POST", f"{resource}/{action}", headers={"If-Match": tag, **KEY})
    again = call(world, "POST", f"{resource}/{action}", headers={"If-Match": tag, **KEY})
    assert done.status_code in (200, 202)
    assert done.json() == again.json()


def test_a_condition_on_what_does_not_exist_is_not_found() -> None:
    """The answer is the same without the condition."""
    answer = call(World(), "POST", "/api/runs/landfall-x-a1/cancel", headers={"If-Match": "*"})
    assert (404, "not_found") == error(answer)


def test_what_takes_time_is_answered_with_its_place() -> None:
    """Each 202 of the document has a Location, also those that are added later."""
    paths = call(World(), "GET", "/api/openapi.json").json()["paths"]
    accepted = {
        path: operation["responses"]["202"].get("headers", {})
        for path, operations in paths.items()
        for operation in operations.values()
        if "202" in operation["responses"]
    }
    assert {"/api/runs", "/api/sweeps", "/api/reconcile", "/api/runs/{run_id}/cancel"} <= set(accepted)
    assert [] == [path for path, headers in accepted.items() if "Location" not in headers]


def test_every_post_takes_a_key_and_every_action_a_condition() -> None:
    """This includes routes that are added later; what a condition is compared with can be requested."""
    world = World()
    world.upload_shards(*ALL_SHARDS)
    paths = call(world, "GET", "/api/openapi.json").json()["paths"]
    posts = {path: operations["post"] for path, operations in paths.items() if "post" in operations}
    headers = {path: {one["name"] for one in post.get("parameters", ())} for path, post in posts.items()}
    assert [] == [path for path, names in headers.items() if "Idempotency-Key" not in names]
    actions = [path for path in posts if path.rpartition("/")[0].endswith("}")]
    assert [] == [path for path in actions if not ("if-match" in headers[path] and "412" in posts[path]["responses"])]
    assert [] == [path for path in actions if "get" not in paths.get(path.rpartition("/")[0], {})]
    assert {f"/api{path}" for path in ("/runs/{run_id}/cancel", "/sweeps/{sweep_id}/cancel")} <= set(actions)
