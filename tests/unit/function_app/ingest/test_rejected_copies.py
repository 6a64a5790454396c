"""Quarantine of shards: a copy with its reasons, never a move, and never in the verdict's way."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from function_app.adapters.storage_errors import StorageRefusedError
from function_app.domain.errors import ServiceUnavailableError
from function_app.domain.records import BlobFacts, ShardRecord, ShardState
from function_app.testing.stores import MemoryRejectedCopies
from tests.support.long_shards import long_world, serve_uploads
from tests.support.world import TRAIN_SHARDS, VERSION, World, shard_content

NAME = TRAIN_SHARDS[0]
PATH = f"digits/v1/{NAME}"


def guarded_world() -> World:
    """A world whose pipeline names a container."""
    world = World()
    world.change_pipeline(quarantine="quarantine")
    return world


def row(world: World) -> ShardRecord | None:
    """The verdict."""
    return world.ledger.shard(VERSION, "train", 0)


def test_a_rejected_shard_is_copied_with_its_reasons() -> None:
    """Under its path and ETag; the shard itself stays."""
    world = guarded_world()
    world.deliver(world.put(NAME, b"<html>"))
    facts = world.shards.facts(PATH)
    assert facts is not None
    copy = f"{PATH}@{facts.etag}"
    assert {("quarantine", copy), ("quarantine", f"{copy}.reasons.json")} == set(world.rejected_copies.blobs)
    assert b"<html>" == world.rejected_copies.blobs["quarantine", copy]
    note = json.loads(world.rejected_copies.blobs["quarantine", f"{copy}.reasons.json"])
    assert (PATH, facts.etag, "not_a_shard") == (note["path"], note["etag"], note["reasons"][0]["code"])
    assert ["shard_quarantined", "shard_rejected"] == world.actions(PATH)


@pytest.mark.parametrize(("name", "content"), [(NAME, shard_content(1)), ("README.md", b"<html>")])
def test_nothing_else_is_copied(name: str, content: bytes) -> None:
    """Accepted shards and files that are no shards are not copied."""
    world = guarded_world()
    world.deliver(world.put(name, content))
    assert {} == world.rejected_copies.blobs


def test_without_a_container_nothing_is_copied() -> None:
    """Quarantine is for those who ask for it."""
    world = World()
    world.deliver(world.put(NAME, b"<html>"))
    assert {} == world.rejected_copies.blobs


def test_each_rejected_content_has_a_copy_of_its_own() -> None:
    """A shard that was wrong twice was wrong in two ways."""
    world = guarded_world()
    for content in (b"<html>", b"PK"):
        world.deliver(world.put(NAME, content))
    assert 4 == len(world.rejected_copies.blobs)


def test_a_second_delivery_copies_nothing() -> None:
    """The verdict is on record."""
    world = guarded_world()
    world.deliver(world.put(NAME, b"<html>"))
    world.rejected_copies.blobs.clear()
    world.deliver(PATH)
    assert {} == world.rejected_copies.blobs


class ClosedRejectedCopies(MemoryRejectedCopies):
    """Takes nothing."""

    error: Exception = StorageRefusedError("storage refused it (403); look at the identity's role assignments")

    def copy(self, facts: BlobFacts, container: str, path: str) -> bool:
        """See RejectedCopies."""
        del facts, container, path
        raise self.error


@pytest.mark.parametrize("error", [StorageRefusedError("refused (403)"), ServiceUnavailableError("no answer")])
def test_a_copy_that_cannot_be_made_does_not_hold_up_the_verdict(error: Exception) -> None:
    """The history says what is missing, and why."""
    world = guarded_world()
    closed = ClosedRejectedCopies(world.shards)
    closed.error = error
    world.services = replace(world.services, rejected_copies=closed)
    world.deliver(world.put(NAME, b"<html>"))
    stored = row(world)
    assert (ShardState.REJECTED, ["quarantine_failed", "shard_rejected"]) == (
        stored and stored.state,
        world.actions(PATH),
    )
    assert str(error) in world.ledger.history(PATH)[0].reason


class CorrectingRejectedCopies(MemoryRejectedCopies):
    """Its owner uploads a good shard right before the copy is made."""

    def copy(self, facts: BlobFacts, container: str, path: str) -> bool:
        """See RejectedCopies."""
        self.shards.put(facts.path, shard_content(1))
        return super().copy(facts, container, path)


def test_a_shard_corrected_before_the_copy_is_judged_again() -> None:
    """The old verdict belongs to content that is gone."""
    world = guarded_world()
    world.services = replace(world.services, rejected_copies=CorrectingRejectedCopies(world.shards))
    world.deliver(world.put(NAME, b"<html>"))
    stored = row(world)
    assert (ShardState.ACCEPTED, {}) == (stored and stored.state, world.rejected_copies.blobs)


def test_a_long_shard_is_copied_in_the_end() -> None:
    """It is copied once, by whichever caller reaches the verdict."""
    world, store = long_world()
    pipeline = world.services.pipelines["digits"].model_copy(update={"quarantine": "quarantine"})
    world.services = replace(
        world.services, pipelines={"digits": pipeline}, rejected_copies=(kept := MemoryRejectedCopies(store))
    )
    world.deliver(world.put(NAME, shard_content(*[7] * 150) + b"trailing"))
    assert {} == kept.blobs
    serve_uploads(world)
    assert 2 == len(kept.blobs)
