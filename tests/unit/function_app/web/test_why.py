"""``GET /api/why``."""

from __future__ import annotations

from tests.support.world import TRAIN_SHARDS, World
from tests.unit.function_app.web.test_app import call, error


def test_the_three_kinds_are_told_apart_by_their_form() -> None:
    """A run id has no slash, a version one, a blob two."""
    world = World()
    run = world.land_all()
    paths = [run.run_id, "digits/v1", f"digits/v1/{TRAIN_SHARDS[0]}"]
    assert ["run", "version", "blob"] == [call(world, "GET", f"/api/why/{path}").json()["kind"] for path in paths]


def test_a_story_has_its_lines_and_what_is_awaited() -> None:
    """In order, with details."""
    world = World()
    world.land(TRAIN_SHARDS[0])
    body = call(world, "GET", "/api/why/digits/v1").json()
    assert (["shard_accepted"], 0, 1) == (
        [line["action"] for line in body["lines"]],
        body["num_omitted"],
        len(body["awaited"]),
    )
    assert {"etag", "crc32c"} <= set(body["lines"][0]["details"])


def test_an_unknown_subject_is_not_found() -> None:
    """In the API's own shape."""
    assert (404, "not_found") == error(call(World(), "GET", "/api/why/nobody"))
