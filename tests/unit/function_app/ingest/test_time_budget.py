"""Shards too large for one execution: what is done stays done, whichever process dies in between."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from function_app.domain.errors import InvalidEventError
from function_app.domain.events import read_uploads
from function_app.domain.records import ShardRecord, ShardState
from function_app.ingest import validation_checkpoints as checkpoints
from function_app.ingest.uploads import OTHERS_UPLOADS
from function_app.sweep.sweep import sweep
from shard_validation import validate_shard
from tests.support.long_shards import long_world, serve_uploads
from tests.support.world import ALL_SHARDS, TRAIN_SHARDS, VERSION, World, pipeline, shard_content

NAME = TRAIN_SHARDS[0]
PATH = f"digits/v1/{NAME}"
CHECKPOINT = f"validations/{PATH}.json"
CONTENT = shard_content(*(n % 10 for n in range(150)))
"""Fifty chunks and more."""


def row(world: World) -> ShardRecord:
    """The verdict."""
    found = world.ledger.shard(VERSION, "train", 0)
    if found is None:
        raise LookupError(PATH)
    return found


def expected(world: World) -> dict[str, Any]:
    """What validation in one go says."""
    facts = world.shards.facts(PATH)
    if facts is None:
        raise LookupError(PATH)
    verdict = validate_shard(world.shards.open(facts), world.services.pipelines["digits"].data.requirements())
    return {"crc32c": verdict.crc32c, "num_records": verdict.num_records, "statistics": verdict.statistics.to_json()}


def seen(world: World) -> dict[str, Any]:
    """What the ledger says."""
    return {name: getattr(row(world), name) for name in ("crc32c", "num_records", "statistics")}


class Killed(BaseException):
    """The instance is recycled: no step may hold this up."""


def test_a_long_shard_is_judged_by_several_executions() -> None:
    """Each leaves a message behind, and the verdict is that of one go; nothing is left in the end."""
    world, _ = long_world()
    world.deliver(world.put(NAME, CONTENT))
    assert (None, True) == (world.ledger.shard(VERSION, "train", 0), CHECKPOINT in world.documents.documents)
    assert serve_uploads(world) > 2
    assert (expected(world), {}) == (seen(world), world.documents.documents)
    assert {"validation_paused", "shard_accepted"} == set(world.actions(PATH))


def test_a_short_shard_costs_no_checkpoint() -> None:
    """By default, shards below 256 MiB are validated in one execution."""
    world = World()
    world.deliver(world.put(NAME, CONTENT))
    assert (ShardState.ACCEPTED, {}, []) == (row(world).state, world.documents.documents, world.uploads.messages)


@pytest.mark.parametrize("chunk", [3, 9, 20, 41])
def test_a_killed_execution_is_gone_on_with_where_it_last_stored(chunk: int) -> None:
    """Its message is delivered again; what was stored is not read a second time."""
    world, store = long_world(budget_s=1000)
    path = world.put(NAME, CONTENT)
    store.act = dies_at(chunk * 100)
    with pytest.raises(Killed):
        world.deliver(path)
    stored = json.loads(world.documents.documents.get(CHECKPOINT, b'{"bytes_done": 0}'))["bytes_done"]
    assert chunk * 100 - stored <= 8 * 100, "a slice, and what was read ahead"
    store.act, store.offsets = lambda _: None, []
    world.deliver(path)
    again = [offset for offset in store.offsets if 0 < offset < stored - 100]
    assert (expected(world), []) == (seen(world), again)


def dies_at(offset: int) -> Callable[[int], None]:
    """Return what kills the reader at a byte."""

    def act(at: int) -> None:
        if at >= offset:
            raise Killed

    return act


def test_a_kill_between_any_two_slices_loses_nothing() -> None:
    """Any number of instances may die: each completes one more slice than the one before, and the last finishes."""
    world, store = long_world(budget_s=1000)
    path, lives = world.put(NAME, CONTENT), 0
    while world.ledger.shard(VERSION, "train", 0) is None:
        store.act = dies_at_read(12)
        try:
            world.deliver(path)
        except Killed:
            lives += 1
        assert lives < 30
    assert (True, expected(world)) == (lives > 3, seen(world))


def dies_at_read(number: int) -> Callable[[int], None]:
    """Return what kills the reader at a read."""
    reads = iter(range(number))

    def act(_: int) -> None:
        if next(reads, None) is None:
            raise Killed

    return act


def test_bytes_that_change_meanwhile_are_validated_from_the_start() -> None:
    """A checkpoint belongs to an ETag: half of one content and half of another are never judged."""
    world, _ = long_world()
    world.deliver(world.put(NAME, CONTENT))
    world.put(NAME, shard_content(*(7 for _ in range(150))))
    serve_uploads(world)
    assert ({"7": 150}, {}) == (row(world).statistics["features"]["label"]["histogram"], world.documents.documents)


def test_other_requirements_restart_the_validation() -> None:
    """What a former pipeline found is not what this one asks for."""
    world, store = long_world()
    world.deliver(world.put(NAME, CONTENT))
    data = world.services.pipelines["digits"].data
    feature = data.features["label"].model_copy(update={"maximum": 3})
    changed = world.services.pipelines["digits"].model_copy(
        update={"data": data.model_copy(update={"features": {"label": feature}})}
    )
    world.services, store.offsets = replace(world.services, pipelines={"digits": changed}), []
    serve_uploads(world)
    assert (0, ShardState.REJECTED, 150) == (store.offsets[0], row(world).state, row(world).num_records)


@pytest.mark.parametrize("damaged", [b"no JSON", b"[]", b"{}", b'{"identity": 1}'])
def test_a_checkpoint_that_is_not_understood_is_left_alone(damaged: bytes) -> None:
    """The validation restarts; a message that fails for ever would be worse."""
    world, _ = long_world()
    world.deliver(world.put(NAME, CONTENT))
    world.documents.documents[CHECKPOINT] = damaged
    serve_uploads(world)
    assert expected(world) == seen(world)


def test_a_checkpoint_of_another_version_of_the_code_restarts_the_validation() -> None:
    """Its identity fits, and validation cannot use it."""
    world, _ = long_world()
    world.deliver(world.put(NAME, CONTENT))
    members = json.loads(world.documents.documents[CHECKPOINT])
    members["checkpoint"] = {"findings": {}}
    world.documents.documents[CHECKPOINT] = json.dumps(members).encode()
    serve_uploads(world)
    assert expected(world) == seen(world)


def test_a_checkpoint_too_large_to_store_is_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The execution goes to the end in one go, as it may."""
    monkeypatch.setattr(checkpoints, "MAX_CHECKPOINT_BYTES", 100)
    world, _ = long_world()
    world.deliver(world.put(NAME, CONTENT))
    assert (expected(world), []) == (seen(world), world.uploads.messages)


def test_a_second_delivery_ends_with_the_same_verdict() -> None:
    """Two handlers at one shard do double work and no harm; a late message finds the verdict."""
    world, _ = long_world()
    path = world.put(NAME, CONTENT)
    world.deliver(path)
    world.deliver(path)
    serve_uploads(world)
    assert (expected(world), 1) == (seen(world), world.actions(PATH).count("shard_accepted"))


def test_the_sweep_leaves_alone_what_is_under_way() -> None:
    """It restarts only what has not changed for a while, because its message may be lost."""
    world, store = long_world()
    world.deliver(world.put(NAME, CONTENT))
    world.uploads.messages.clear()
    world.clock.move(minutes=5)
    store.offsets = []
    sweep(world.services)
    assert [] == store.offsets
    world.clock.move(minutes=6)
    sweep(world.services)
    assert (1, []) == (len(world.uploads.messages), store.offsets)
    serve_uploads(world)
    assert expected(world) == seen(world)


def test_the_sweep_leaves_a_missed_long_shard_to_the_queue() -> None:
    """The timer has other work than to read it: it asks once, and then leaves it alone for a while."""
    world, store = long_world()
    world.put(NAME, CONTENT)
    world.clock.move(minutes=5)
    for _ in range(3):
        sweep(world.services)
    assert (1, []) == (len(world.uploads.messages), store.offsets)
    serve_uploads(world)
    assert expected(world) == seen(world)


def test_a_compressed_shard_too_long_for_one_execution_is_rejected() -> None:
    """No execution would come further than the one before: the reason says what to do, and it is not tried again."""
    world, store = long_world(budget_s=10)
    world.services = replace(world.services, time_budget=replace(world.services.time_budget, patience_s=12))
    world.deliver(world.put(NAME, gzip.compress(CONTENT, 0)))
    serve_uploads(world)
    reason = row(world).reasons[-1]
    assert (ShardState.REJECTED, "validation_too_long") == (row(world).state, str(reason.code))
    store.offsets = []
    world.clock.move(minutes=60)
    sweep(world.services)
    assert ([], [], {}) == (store.offsets, world.uploads.messages, world.documents.documents)


def test_the_sweep_leaves_a_compressed_shard_to_the_execution_that_validates_it() -> None:
    """It has no checkpoint, but it was begun: for as long as an execution may take, no other begins."""
    world, store = long_world()
    path = world.put(NAME, gzip.compress(CONTENT, 0))
    store.act = dies_at(2000)
    with pytest.raises(Killed):
        world.deliver(path)
    store.act = lambda _: None
    for minutes, num_messages in ((5, 0), (18, 0), (2, 1)):
        world.clock.move(minutes=minutes)
        sweep(world.services)
        assert num_messages == len(world.uploads.messages)
    serve_uploads(world)
    assert expected(world) == seen(world)


def test_a_whole_version_of_long_shards_is_trained() -> None:
    """Closing follows the last verdict, as ever."""
    world, _ = long_world()
    for label, name in enumerate(ALL_SHARDS):
        world.deliver(world.put(name, shard_content(*[label] * 150)))
        serve_uploads(world)
    assert 1 == len(world.requests.messages)


def test_a_long_parquet_shard_is_judged_by_several_executions() -> None:
    """It pauses while its checksum is taken, and between row groups."""
    world, _ = long_world()
    features = {name: feature for name, feature in pipeline().data.features.items() if name == "label"}
    data = pipeline().data.model_copy(update={"format": "parquet", "features": features})
    world.services = replace(world.services, pipelines={"digits": pipeline(data=data)})
    path = world.put("train-00000-of-00001.parquet", parquet_content(num_groups=30))
    world.deliver(path)
    num_messages = serve_uploads(world)
    assert (True, ShardState.ACCEPTED, 300) == (num_messages > 2, row(world).state, row(world).num_records)
    assert {} == world.documents.documents


def parquet_content(num_groups: int) -> bytes:
    """A shard with ten rows in each row group."""
    buffer = io.BytesIO()
    table = pa.table({"label": [n % 10 for n in range(10 * num_groups)]})
    parquet.write_table(table, buffer, row_group_size=10)
    return buffer.getvalue()


def test_a_continuation_for_another_container_is_none_of_ours() -> None:
    """Write access to the queue allows having shards looked at, and no more."""
    world, _ = long_world()
    world.deliver(world.put(NAME, CONTENT))
    event = json.loads(world.uploads.messages.pop())
    event["subject"] = event["subject"].replace("/datasets/", "/elsewhere/")
    world.uploads.messages.append(json.dumps(event))
    serve_uploads(world)
    assert (1, "validation_paused") == (
        sum(world.ledger.counter_rows[OTHERS_UPLOADS].values()),
        world.actions(PATH)[-1],
    )


def test_a_continuation_is_bounded_as_any_event() -> None:
    """It is read by the same reader."""
    with pytest.raises(InvalidEventError, match="data is not an object"):
        read_uploads(json.dumps({"eventType": "Landfall.ShardValidationContinued", "subject": "x", "id": "1"}))
