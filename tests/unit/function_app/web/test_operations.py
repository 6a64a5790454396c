"""The operator's part of the HTTP API: sweeping now, and dead letters."""

from __future__ import annotations

import pytest

from function_app.domain.events import SHARD_UPLOADED
from function_app.domain.records import GivenUp
from tests.support.ledger_records import NOON
from tests.support.world import ALL_SHARDS, World
from tests.unit.function_app.web.test_app import call, error


def world_with_letter() -> tuple[World, str]:
    """A world in which a message was given up and taken to the ledger; its letter's id."""
    world = World()
    payload = '{"subject": "/blobServices/default/containers/datasets/blobs/digits/v1/x"}'
    world.given_up.lying.append(
        GivenUp(source=SHARD_UPLOADED, payload=payload, identity=payload, error="", tries=5, died_at=NOON, death="1")
    )
    call(world, "POST", "/api/reconcile")
    return world, world.ledger.dead_letters()[0].dead_letter_id


def test_a_sweep_on_demand_says_what_it_did() -> None:
    """The same as the timer's, and at once."""
    world = World()
    for name in ALL_SHARDS:
        world.put(name)
    world.clock.move(minutes=5)
    answer = call(world, "POST", "/api/reconcile")
    assert (200, 3, 1, []) == (
        answer.status_code,
        answer.json()["shards_judged"],
        answer.json()["versions"],
        answer.json()["problems"],
    )


def test_dead_letters_are_listed_without_their_payload() -> None:
    """A list is for finding one."""
    world, name = world_with_letter()
    (letter,) = call(world, "GET", "/api/dead-letters").json()["dead_letters"]
    assert (name, "digits/v1/x", 5, False) == (
        letter["dead_letter_id"],
        letter["subject"],
        letter["tries"],
        "payload" in letter,
    )


def test_a_dead_letter_is_shown_with_its_payload() -> None:
    """As it was given up."""
    world, name = world_with_letter()
    assert "/blobServices/" in call(world, "GET", f"/api/dead-letters/{name}").json()["payload"]


def test_a_replay_is_answered_with_the_letter() -> None:
    """And the message is in its queue again."""
    world, name = world_with_letter()
    answer = call(world, "POST", f"/api/dead-letters/{name}/replay")
    assert (200, "replayed", 1, 1) == (
        answer.status_code,
        answer.json()["state"],
        answer.json()["num_replays"],
        len(world.uploads.messages),
    )


@pytest.mark.parametrize(("method", "suffix"), [("GET", ""), ("POST", "/replay")])
def test_an_unknown_letter_is_not_found(method: str, suffix: str) -> None:
    """In the API's own shape."""
    assert (404, "not_found") == error(call(World(), method, f"/api/dead-letters/{'0' * 16}{suffix}"))


def test_a_name_that_is_none_is_refused() -> None:
    """Ids are hexadecimal."""
    assert (422, "invalid_request") == error(call(World(), "GET", "/api/dead-letters/..%2e"))
