"""A dataset that uploads many shards at once does not keep the others waiting, and loses none."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from threading import Barrier, Lock
from typing import Any

import pytest

from function_app.domain.errors import ServiceUnavailableError
from function_app.domain.events import QueuedMessage, joined_messages, read_uploads
from function_app.domain.records import NUM_BUCKETS, DatasetVersion, ShardRecord
from function_app.ingest.messages import handle_message, handle_passed_on
from function_app.services import Turns
from function_app.testing.ledger import MemoryLedger
from function_app.testing.stores import MemoryRequestQueue, MemoryShardSource
from shard_validation import DataRequirements, ShardSource, ShardVerdict, SourceForbiddenError, validate_shard
from tests.support.ledger_records import NOON
from tests.support.long_shards import serve_uploads
from tests.support.world import VALIDATION_SHARDS, World, event_message, shard_content

NUM_SHARDS = 200
FLOOD = tuple(f"train-{index:05d}-of-{NUM_SHARDS:05d}.tfrecord" for index in range(NUM_SHARDS))


@dataclass
class Flood:
    """A world with a second dataset, and a clock of the turns that tests move."""

    now_s: float = 0.0
    arrived: list[str] = field(default_factory=list)
    """Paths of messages that lie in the queue of uploads."""
    world: World = field(default_factory=World)

    def __post_init__(self) -> None:
        self.world.add_pipelines("faces")
        turns = Turns(seconds=lambda: self.now_s, wait=self.wait)
        self.world.services = replace(self.world.services, turns=turns)

    def arrive(self, *paths: str, waited_s: float = 1.5, **members: Any) -> None:
        """Handle one message of the queue of uploads, which has lain there for some time."""
        inserted_at = self.world.clock() - timedelta(seconds=waited_s)
        handle_message(event_message(paths).encode(), self.world.services, **{"inserted_at": inserted_at, **members})

    def wait(self, seconds: float) -> None:
        """Let time pass; meanwhile the other queue's trigger handles what has arrived, 10 ms for each message."""
        end_s = self.now_s + seconds
        while self.now_s < end_s and self.arrived:
            self.now_s += 0.01
            self.arrive(self.arrived.pop(0))
        self.now_s = max(self.now_s, end_s)

    def serve_bulk(self) -> None:
        """Handle the first message that was passed on."""
        handle_passed_on(self.world.bulk.messages.pop(0).encode(), self.world.services)

    def upload_all(self) -> None:
        """Upload a version of 200 shards, and handle its messages in the order of their arrival."""
        for number, name in enumerate(FLOOD):
            self.arrive(self.world.put(name, shard_content(number % 10, number // 10 % 10, number // 100)))

    def num_judged(self) -> int:
        """How many shards of the flood have a verdict."""
        return len(self.world.ledger.shard_rows)


@pytest.fixture
def flood() -> Flood:
    return Flood()


def test_a_shard_behind_a_flood_waits_for_one_turn(flood: Flood) -> None:
    """The 180 shards before it are only passed on."""
    flood.upload_all()
    before = flood.num_judged()
    other = flood.world.put(FLOOD[0], dataset="faces")
    flood.arrive(other)
    assert (20, ["shard_accepted"]) == (before, flood.world.actions(other))


def test_what_was_passed_on_gives_way(flood: Flood) -> None:
    """Both queues are served at once: while there is more to pass on, none of it is judged."""
    flood.upload_all()
    other = flood.world.put(FLOOD[0], dataset="faces")
    flood.arrived += [*(f"digits/v1/{name}" for name in FLOOD[20:120]), other]
    flood.serve_bulk()
    judged = [version.dataset for version, _, _ in flood.world.ledger.shard_rows]
    assert [*["digits"] * 20, "faces", "digits"] == judged


def test_it_does_not_wait_for_ever(flood: Flood) -> None:
    """A flood without an end must not keep its own shards from being judged."""
    flood.upload_all()
    flood.arrived += [f"digits/v1/{name}" for name in FLOOD] * 3
    flood.serve_bulk()
    assert (21, 2.0) == (flood.num_judged(), round(flood.now_s, 2))


def test_what_was_passed_on_is_judged_and_closes_the_version(flood: Flood) -> None:
    """None is lost."""
    flood.upload_all()
    flood.world.upload_shards(*VALIDATION_SHARDS)
    assert NUM_SHARDS - 20 == len(flood.world.bulk.messages)
    serve_uploads(flood.world)
    generation = flood.world.ledger.latest_generation(next(flood.world.ledger.versions()))
    assert NUM_SHARDS + 1 == (generation and generation.num_shards)


def test_a_message_of_many_shards_counts_them_all(flood: Flood) -> None:
    """Those of the sweep have ten."""
    for start in range(0, 40, 10):
        flood.arrive(*(flood.world.put(name) for name in FLOOD[start : start + 10]))
    assert (20, 2) == (flood.num_judged(), len(flood.world.bulk.messages))


def test_messages_behind_a_passed_one_are_passed_on_with_it(flood: Flood) -> None:
    """They fill as few messages as possible, grouped by bucket; shards of other datasets are validated."""
    flood.upload_all()
    flood.world.bulk.messages.clear()
    other = flood.world.put(FLOOD[0], dataset="faces")
    for path in (*(f"digits/v1/{name}" for name in FLOOD[20:70]), other):
        flood.world.uploads.send_text(event_message([path]))
    flood.arrive(f"digits/v1/{FLOOD[70]}")
    (passed_on,) = [read_uploads(text) for text in flood.world.bulk.messages]
    buckets = [int(upload.path.split("-")[1]) % NUM_BUCKETS for upload in passed_on]
    assert (51, sorted(buckets)) == (len(passed_on), buckets)
    assert ["shard_accepted"] == flood.world.actions(other)
    assert ([], {}) == (flood.world.uploads.messages, flood.world.uploads.taken)
    assert flood.num_judged() == 21


def test_passing_on_has_an_end(flood: Flood) -> None:
    """The rest is left to the next message; none is lost."""
    flood.upload_all()
    flood.world.bulk.messages.clear()
    for name in FLOOD[20:100]:
        flood.world.uploads.send_text(event_message([f"digits/v1/{name}"]))
    flood.world.services.turns.max_passed_on = 32
    flood.arrive(f"digits/v1/{FLOOD[0]}")
    assert (1, 48) == (len(flood.world.bulk.messages), len(flood.world.uploads.messages))


def test_messages_that_were_passed_on_are_deleted_before_another_is_handled(flood: Flood) -> None:
    """Handling may take longer than they are hidden, after which they would be delivered again."""
    flood.upload_all()
    other = flood.world.put(FLOOD[0], dataset="faces")
    for path in (other, *(f"digits/v1/{name}" for name in FLOOD[20:30])):
        flood.world.uploads.send_text(event_message([path]))
    hidden: list[list[str]] = []

    def validate(source: ShardSource, requirements: DataRequirements) -> ShardVerdict:
        hidden.append([one.path for taken in flood.world.uploads.taken.values() for one in read_uploads(taken.text)])
        return validate_shard(source, requirements)

    flood.world.services = replace(flood.world.services, validate=validate)
    flood.arrive(f"digits/v1/{FLOOD[70]}")
    assert [[other]] == hidden


def test_messages_that_were_passed_on_are_deleted_several_at_once(
    flood: Flood, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another dataset's shard waits behind all of them; a delete waits for storage, and meanwhile others can."""
    flood.upload_all()
    for name in FLOOD[20:24]:
        flood.world.uploads.send_text(event_message([f"digits/v1/{name}"]))
    meeting, delete = Barrier(4), MemoryRequestQueue.delete

    def meet(queue: MemoryRequestQueue, message: QueuedMessage) -> None:
        meeting.wait(60)
        delete(queue, message)

    monkeypatch.setattr(MemoryRequestQueue, "delete", meet)
    flood.arrive(f"digits/v1/{FLOOD[70]}")
    assert {} == flood.world.uploads.taken


def test_a_repeated_or_senseless_message_is_not_passed_on_with_others(flood: Flood) -> None:
    """A repeated one is judged as such; one that cannot be read is delivered again, and becomes a dead letter."""
    flood.upload_all()
    flood.world.bulk.messages.clear()
    again, senseless = event_message([f"digits/v1/{FLOOD[30]}"]), '{"no": "event"}'
    flood.world.uploads.send_text(again)
    flood.world.uploads.take(1, hidden_for=timedelta(seconds=1))
    flood.world.uploads.reappear()
    flood.world.uploads.send_text(senseless)
    flood.arrive(f"digits/v1/{FLOOD[31]}")
    assert ["shard_accepted"] == flood.world.actions(f"digits/v1/{FLOOD[30]}")
    assert [senseless] == [one.text for one in flood.world.uploads.taken.values()]
    assert [f"digits/v1/{FLOOD[31]}"] == [
        one.path for text in flood.world.bulk.messages for one in read_uploads(text)
    ]


def joined(*paths: str) -> bytes:
    """A message of several shards, as they are passed on."""
    return event_message(paths).encode()


def refuse(source: ShardSource, requirements: DataRequirements) -> ShardVerdict:
    del source, requirements
    raise SourceForbiddenError("the app may not read it")


def test_a_shard_that_fails_holds_up_none_that_shares_its_message(flood: Flood) -> None:
    """It and those behind it become messages of their own, so only its own message is given up in the end."""
    paths = [flood.world.put(name) for name in FLOOD[:3]]
    verdicts = iter([validate_shard, refuse])

    def validate(source: ShardSource, requirements: DataRequirements) -> ShardVerdict:
        return next(verdicts)(source, requirements)

    services = replace(flood.world.services, validate=validate)
    handle_passed_on(joined(*paths), services)
    assert ["shard_accepted"] == flood.world.actions(paths[0])
    assert [[path] for path in paths[1:]] == [
        [upload.path for upload in read_uploads(text)] for text in flood.world.bulk.messages
    ]


def test_a_message_that_is_delivered_again_is_taken_apart(flood: Flood) -> None:
    """One of its shards may have ended the process: only the message of that one is delivered once more."""
    paths = [flood.world.put(name) for name in FLOOD[:3]]
    handle_passed_on(joined(*paths), flood.world.services, num_deliveries=2)
    assert (0, [1, 1, 1]) == (flood.num_judged(), [len(read_uploads(text)) for text in flood.world.bulk.messages])


def test_shards_that_take_long_are_left_to_any_instance(flood: Flood) -> None:
    """One instance would validate them one after the other."""
    paths = [flood.world.put(name) for name in FLOOD[:3]]
    flood.world.services.turns.together_s = 0.0
    handle_passed_on(joined(*paths), flood.world.services)
    assert (1, [1, 1]) == (flood.num_judged(), [len(read_uploads(text)) for text in flood.world.bulk.messages])


@pytest.mark.parametrize(("size_bytes", "at_once"), [(1 << 20, 4), ((1 << 20) + 1, 1), (None, 1)])
def test_small_shards_of_a_message_are_handled_at_the_same_time(
    flood: Flood, size_bytes: int | None, at_once: int
) -> None:
    """They wait for storage; larger ones, and those of unknown size, need the processor and the memory alone."""
    under_way, most, lock = Counter[str](), [], Lock()
    meeting = Barrier(at_once)

    def validate(source: ShardSource, requirements: DataRequirements) -> ShardVerdict:
        with lock:
            under_way["now"] += 1
            most.append(under_way["now"])
        meeting.wait(60)
        with lock:
            under_way["now"] -= 1
        return validate_shard(source, requirements)

    paths = [flood.world.put(name) for name in FLOOD[:8]]
    services = replace(flood.world.services, validate=validate)
    handle_passed_on(event_message(paths, contentLength=size_bytes).encode(), services)
    assert (8, at_once, []) == (flood.num_judged(), max(most), flood.world.bulk.messages)


@pytest.mark.parametrize(("size_bytes", "num_reads"), [(1 << 20, 0), ((1 << 20) + 1, 1), (None, 1), (-1, 1)])
def test_a_small_shard_is_looked_at_and_read_at_once(
    flood: Flood, monkeypatch: pytest.MonkeyPatch, size_bytes: int | None, num_reads: int
) -> None:
    """A shard of this size by its event costs one request instead of two."""
    reads: list[int] = []
    read = MemoryShardSource.read

    def counted(source: MemoryShardSource, offset: int, length: int) -> bytes:
        reads.append(length)
        return read(source, offset, length)

    monkeypatch.setattr(MemoryShardSource, "read", counted)
    text = event_message([flood.world.put(FLOOD[0])], contentLength=size_bytes)
    handle_message(text.encode(), flood.world.services)
    assert (1, num_reads) == (flood.num_judged(), len(reads))


def small(*paths: str) -> bytes:
    """A message of several shards, as they are passed on, which states their size."""
    return event_message(paths, contentLength=100).encode()


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The indices of the shards that are recorded together."""
    found: list[list[int]] = []
    record = MemoryLedger.record_first_verdicts

    def watched(ledger: MemoryLedger, shards: Sequence[ShardRecord]) -> int | None:
        found.append([shard.index for shard in shards])
        return record(ledger, shards)

    monkeypatch.setattr(MemoryLedger, "record_first_verdicts", watched)
    return found


def test_small_shards_of_one_bucket_are_recorded_together(flood: Flood, groups: list[list[int]]) -> None:
    """One transaction for each bucket; each shard has its entry, and the version closes once, with the last one."""
    flood.world.upload_shards(*VALIDATION_SHARDS)
    contents = (shard_content(number % 10, number // 10 % 10, number // 100) for number in range(NUM_SHARDS))
    paths = [flood.world.put(name, content) for name, content in zip(FLOOD, contents, strict=True)]
    for start in range(0, NUM_SHARDS, 50):
        handle_passed_on(small(*paths[start : start + 50]), flood.world.services)
    assert [list(range(NUM_SHARDS))] == [sorted(index for group in groups for index in group)]
    assert (64, {1}) == (len(groups), {len({index % NUM_BUCKETS for index in group}) for group in groups})
    assert [["shard_accepted"]] * NUM_SHARDS == [flood.world.actions(path) for path in paths]
    closings = list(flood.world.ledger.generation_rows.values())
    assert [NUM_SHARDS + 1] == [closing.num_shards for closing in closings]


def test_what_is_not_simply_accepted_is_handled_by_itself(flood: Flood, groups: list[list[int]]) -> None:
    """A damaged shard, one that is gone, one that came before, one twice, a file of others, and a good one."""
    known, damaged, good = (flood.world.put(FLOOD[number]) for number in (0, 16, 32))
    flood.world.put(FLOOD[16], b"no records")
    gone, foreign = f"digits/v1/{FLOOD[48]}", "others/v1/x"
    flood.world.services.turns.small_at_once = 1  # both handlers of the same upload may otherwise accept it
    handle_message(small(known), flood.world.services)
    handle_passed_on(small(known, damaged, gone, good, good, foreign), flood.world.services)
    assert [[0, 32]] == groups
    expected = {
        known: ["shard_accepted", "event_suppressed"],
        damaged: ["shard_rejected"],
        gone: ["event_suppressed"],
        good: ["shard_accepted", "event_suppressed"],
    }
    assert expected == {path: flood.world.actions(path) for path in expected}
    assert [] == flood.world.bulk.messages


def test_where_the_ledger_fails_the_shards_become_messages(flood: Flood, monkeypatch: pytest.MonkeyPatch) -> None:
    """None is lost, and each message is tried by itself."""
    paths = [flood.world.put(FLOOD[number]) for number in (0, 16, 32)]

    def fail(*_: object, **__: object) -> None:
        raise ServiceUnavailableError("storage is away")

    with monkeypatch.context() as away:
        for method in ("record_first_verdicts", "record_shard"):
            away.setattr(MemoryLedger, method, fail)
        handle_passed_on(small(*paths), flood.world.services)
    assert (0, [1, 1, 1]) == (flood.num_judged(), [len(read_uploads(text)) for text in flood.world.bulk.messages])
    serve_uploads(flood.world)
    assert flood.num_judged() == 3


def test_shards_of_a_message_ask_once_how_many_their_split_has(flood: Flood, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger is read again if a name states another number; the next message reads it again."""
    asked: list[int] = []
    claim = MemoryLedger.claim_split_size

    def counted(ledger: MemoryLedger, version: DatasetVersion, split: str, num_shards: int) -> int:
        asked.append(num_shards)
        return claim(ledger, version, split, num_shards)

    monkeypatch.setattr(MemoryLedger, "claim_split_size", counted)
    names = [*FLOOD[:3], "train-00003-of-00004.tfrecord", FLOOD[4]]
    handle_passed_on(joined(*(flood.world.put(name) for name in names)), flood.world.services)
    handle_passed_on(joined(*(flood.world.put(name) for name in FLOOD[5:7])), flood.world.services)
    assert ([NUM_SHARDS, 4, NUM_SHARDS], 6) == (asked, flood.num_judged())


def test_joined_messages_fit_into_a_queue() -> None:
    """Storage takes 64 KiB of Base64; events with the longest names take more messages."""
    long = [event_message([f"digits/v1/{'ü' * 1500}-{number}"]) for number in range(5)]
    texts = joined_messages(long)
    assert [2, 2, 1] == [len(read_uploads(text)) for text in texts]
    assert all(len(base64.b64encode(text.encode())) <= 65_536 for text in texts)
    assert [] == joined_messages([])


def test_after_a_minute_a_dataset_has_another_turn(flood: Flood) -> None:
    """Slow uploads never leave the queue of uploads."""
    flood.upload_all()
    flood.now_s = 60.0
    late = flood.world.put(VALIDATION_SHARDS[0])
    flood.arrive(late)
    assert ["shard_accepted"] == flood.world.actions(late)


def test_where_nothing_waits_nothing_is_passed_on(flood: Flood) -> None:
    """Passing on costs another message; the second queue is only for what the first one cannot take."""
    for name in FLOOD[:50]:
        flood.arrive(flood.world.put(name), waited_s=1.4)
    assert (50, 0) == (flood.num_judged(), len(flood.world.bulk.messages))


@pytest.mark.parametrize("inserted_at", [None, NOON.replace(tzinfo=None)])
def test_a_time_that_the_host_does_not_state_is_long_ago(flood: Flood, inserted_at: datetime | None) -> None:
    """Passing on is always safe; a time without a zone is in UTC."""
    flood.upload_all()
    flood.world.clock.move(hours=1)
    flood.arrive(flood.world.put(VALIDATION_SHARDS[0]), inserted_at=inserted_at)
    assert NUM_SHARDS - 19 == len(flood.world.bulk.messages)


def test_a_repeated_delivery_is_not_passed_on(flood: Flood) -> None:
    """In another queue it would count as the first, and a shard that kills its validation would never be rejected."""
    flood.upload_all()
    again = flood.world.put(VALIDATION_SHARDS[0])
    flood.arrive(again, num_deliveries=2)
    assert ["shard_accepted"] == flood.world.actions(again)


def test_a_message_with_a_shard_of_another_dataset_is_handled(flood: Flood) -> None:
    """That shard has not had its turn."""
    flood.upload_all()
    other = flood.world.put(FLOOD[0], dataset="faces")
    flood.arrive(flood.world.put(VALIDATION_SHARDS[0]), other)
    assert ["shard_accepted"] == flood.world.actions(other)


def test_uploads_of_others_have_no_turns(flood: Flood) -> None:
    """They are counted by the day, which is no work, and their names must not fill the memory."""
    for number in range(100):
        flood.arrive(f"others{number}/v1/{FLOOD[0]}")
    assert ({}, 0) == (flood.world.services.turns.came_s, len(flood.world.bulk.messages))
