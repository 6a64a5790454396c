"""Executions that a shard kills are counted, whatever started them, until the shard is rejected with what to do."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from function_app.domain.errors import ServiceUnavailableError
from function_app.domain.events import read_uploads
from function_app.domain.records import ShardState
from function_app.ingest.uploads import handle_upload
from function_app.ingest.validation_checkpoints import MAX_STARTS
from function_app.sweep.sweep import sweep
from shard_validation import Paused, ShardVerdict, SourceUnavailableError
from tests.support.long_shards import SmallChunkStore, long_world, serve_uploads
from tests.support.world import TRAIN_SHARDS, VERSION, World, shard_content

NAME = TRAIN_SHARDS[0]
PATH = f"digits/v1/{NAME}"
CHECKPOINT = f"validations/{PATH}.json"
CONTENT = shard_content(*(n % 10 for n in range(150)))
COMPRESSED = gzip.compress(CONTENT, 0)
"""It cannot be paused."""
MAX_DELIVERIES = 5
"""``maxDequeueCount`` of host.json."""


class Killed(BaseException):
    """The process is gone, out of memory for one: no step may hold this up."""


def kills(_: int) -> None:
    """What happens to a process that reads."""
    raise Killed


def kills_from(offset: int) -> Callable[[int], None]:
    """Return a fault that kills a process that reads from an offset on."""

    def act(at: int) -> None:
        if at >= offset:
            raise Killed

    return act


def short_world() -> tuple[World, SmallChunkStore]:
    """A world in which every shard is a short one, as most are."""
    world, store = long_world()
    world.services = replace(world.services, time_budget=replace(world.services.time_budget, min_bytes=1 << 30))
    return world, store


def deliver_until_given_up(world: World, message: str | None = None) -> int:
    """Be the host: deliver a message until it is handled, and not for ever; return the tries."""
    for number in range(1, MAX_DELIVERIES + 1):
        try:
            if message is None:
                world.deliver(PATH, is_repeated=number > 1)
                return number
            for upload in read_uploads(message, num_deliveries=number):
                handle_upload(upload, world.services)
        except (Killed, ValueError):
            continue
        return number
    return MAX_DELIVERIES


def verdict(world: World) -> tuple[ShardState, str] | None:
    """The verdict, and its last reason."""
    row = world.ledger.shard(VERSION, "train", 0)
    return None if row is None else (row.state, row.reasons[-1].code if row.reasons else "")


def starts(world: World) -> int:
    """How many executions are on record as having begun and come no further."""
    stored = world.documents.documents.get(CHECKPOINT)
    return json.loads(stored)["num_starts"] if stored else 0


REJECTED = (ShardState.REJECTED, "validation_interrupted")
ACCEPTED = (ShardState.ACCEPTED, "")


def test_a_shard_that_kills_its_validation_is_rejected_in_the_end() -> None:
    """Five deliveries die, the sweep has the queue try again: that execution reads nothing and says what to do."""
    world, store = long_world()
    world.put(NAME, COMPRESSED)
    store.act = kills_from(2000)
    assert (MAX_DELIVERIES, None) == (deliver_until_given_up(world), verdict(world))
    world.clock.move(minutes=60)
    sweep(world.services)
    store.offsets = []
    serve_uploads(world)
    assert (REJECTED, [], {}) == (verdict(world), store.offsets, world.documents.documents)
    (line,) = [d.reason for d in world.ledger.history(PATH) if d.action == "shard_rejected"]
    assert line == (
        f"{NAME} at byte 0: expected a verdict within one execution (write smaller records, row groups or shards, "
        "or give the app more memory, and upload the shard again), got 5 executions that died (killed, out of "
        "memory, or an error)"
    )


def test_a_rejected_shard_is_left_alone_and_other_content_starts_from_zero() -> None:
    """The verdict is that of any rejected shard."""
    world, store = long_world()
    world.put(NAME, COMPRESSED)
    store.act = kills
    for _ in range(2):
        deliver_until_given_up(world)
    world.clock.move(minutes=60)
    sweep(world.services)
    assert (REJECTED, []) == (verdict(world), world.uploads.messages)
    store.act = lambda _: None
    world.deliver(world.put(NAME, gzip.compress(CONTENT)))
    assert ACCEPTED == verdict(world)


def test_executions_that_come_further_are_not_counted() -> None:
    """Instances that are recycled every few slices validate a shard of any size."""
    world, store = long_world(budget_s=1000)
    world.put(NAME, CONTENT)
    num_killed = 0
    while verdict(world) is None:
        reads = iter(range(9))
        store.act = lambda _, reads=reads: None if next(reads, None) is not None else kills(0)  # type: ignore[misc]
        try:
            world.deliver(PATH)
        except Killed:
            num_killed += 1
        assert num_killed < 40
    assert (True, ACCEPTED) == (num_killed > MAX_STARTS, verdict(world))


def test_a_slice_that_kills_is_rejected_where_it_lies() -> None:
    """What was done before it is on record, and what counts are the executions that died from there."""
    world, store = long_world(budget_s=1000)
    world.put(NAME, CONTENT)
    store.act = kills_from(3000)
    deliver_until_given_up(world)
    bytes_done = json.loads(world.documents.documents[CHECKPOINT])["bytes_done"]
    deliver_until_given_up(world)
    row = world.ledger.shard(VERSION, "train", 0)
    assert (REJECTED, True) == (verdict(world), bytes_done > 0)
    assert row is not None
    assert bytes_done == row.reasons[0].byte_offset


def test_storage_that_is_away_is_no_fault_of_the_shard() -> None:
    """An execution that says why it failed has come to an end, however often that is."""
    world, store = long_world()
    world.put(NAME, COMPRESSED)

    def away(_: int) -> None:
        raise SourceUnavailableError("storage did not answer")

    store.act = away
    for _ in range(2 * MAX_STARTS):
        with pytest.raises(ServiceUnavailableError):
            world.deliver(PATH)
    store.act = lambda _: None
    world.deliver(PATH)
    assert ACCEPTED == verdict(world)


def test_a_short_shard_that_kills_is_rejected_too() -> None:
    """Its first delivery leaves nothing behind, the others do; the sweep does not die of it."""
    world, store = short_world()
    world.put(NAME, CONTENT)
    store.act = kills
    assert (MAX_DELIVERIES, MAX_DELIVERIES - 1) == (deliver_until_given_up(world), starts(world))
    world.clock.move(minutes=5)
    sweep(world.services)
    num_tries = deliver_until_given_up(world, world.uploads.messages.pop())
    assert (2, REJECTED, {}) == (num_tries, verdict(world), world.documents.documents)


def test_the_sweep_does_not_die_of_a_short_shard() -> None:
    """Its event was lost: the sweep sends a message, and another one once the first was given up."""
    world, store = short_world()
    world.put(NAME, CONTENT)
    store.act = kills
    for num_messages in (1, 0, 1):
        world.clock.move(minutes=6)
        sweep(world.services)
        assert num_messages == len(world.uploads.messages)
        for message in world.uploads.messages:
            deliver_until_given_up(world, message)
        world.clear_uploads()
    assert REJECTED == verdict(world)


def test_a_short_shard_that_is_well_leaves_nothing_behind() -> None:
    """Its instance was recycled: the second delivery has the verdict."""
    world, store = short_world()
    world.put(NAME, CONTENT)

    def kills_once(at: int) -> None:
        store.act = lambda _: None
        kills(at)

    store.act = kills_once
    assert (2, ACCEPTED, {}) == (deliver_until_given_up(world), verdict(world), world.documents.documents)


def test_a_validator_that_fails_after_each_new_beginning_is_given_up() -> None:
    """Its checkpoint looks like one that is of no use: it restarts, gets far each time, and that is counted."""
    world, _ = long_world()
    validate_within, num_executions = world.services.validate_within, 0

    def fails(*args: Any, **named: Any) -> ShardVerdict | Paused:
        outcome = validate_within(*args, **named)
        if isinstance(outcome, ShardVerdict) or outcome.bytes_done > len(CONTENT) // 2:
            raise ValueError("an unforeseen error")
        return outcome

    world.services = replace(world.services, validate_within=fails)
    world.put(NAME, CONTENT)
    deliver_until_given_up(world)
    while verdict(world) is None:
        num_executions += 1
        assert num_executions < 100
        if not world.uploads.messages:
            world.clock.move(minutes=60)
            sweep(world.services)
        deliver_until_given_up(world, world.uploads.messages.pop())
    assert REJECTED == verdict(world)


def test_what_was_stored_before_executions_were_counted_is_gone_on_with() -> None:
    """A deployment in the middle of a validation costs nothing."""
    world, store = long_world()
    world.deliver(world.put(NAME, CONTENT))
    members = json.loads(world.documents.documents[CHECKPOINT])
    del members["num_starts"], members["num_restarts"]
    world.documents.documents[CHECKPOINT] = json.dumps(members).encode()
    store.offsets = []
    serve_uploads(world)
    again = [offset for offset in store.offsets if 0 < offset < members["bytes_done"] - 100]
    assert (ACCEPTED, []) == (verdict(world), again)
