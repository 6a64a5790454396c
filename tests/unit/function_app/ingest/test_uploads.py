"""One upload's event: what is judged, what is suppressed and why, what happens when the world moves meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from crc32c import crc32c

from function_app.domain.errors import ServiceUnavailableError
from function_app.domain.records import BlobFacts, ShardRecord, ShardState
from function_app.explain.description import describe_version
from function_app.ingest.uploads import OTHERS_UPLOADS
from function_app.services import Validate
from function_app.sweep.sweep import sweep
from shard_validation import (
    DataRequirements,
    ReasonCode,
    ShardSource,
    ShardVerdict,
    SourceUnavailableError,
    validate_shard,
)
from tests.support.world import ALL_SHARDS, TRAIN_SHARDS, VALIDATION_SHARDS, VERSION, World, shard_content

NAME = TRAIN_SHARDS[0]
PATH = f"digits/v1/{NAME}"


@dataclass
class Interrupted:
    """A validator during whose work something happens to the store, a set number of times."""

    happens: Callable[[], None]
    times: int = 1
    calls: int = field(default=0)

    def __call__(self, source: ShardSource, requirements: DataRequirements) -> ShardVerdict:
        self.calls += 1
        if self.calls <= self.times:
            self.happens()
        return validate_shard(source, requirements)


def row(world: World) -> ShardRecord | None:
    """The verdict on the shard of these tests."""
    return world.ledger.shard(VERSION, "train", 0)


def only_reason(world: World, path: str = PATH) -> str:
    """The reason of the only entry about a path, which must be a suppression."""
    (entry,) = world.ledger.history(path)
    assert "event_suppressed" == entry.action
    return entry.reason


def test_a_good_shard_is_accepted_with_what_was_seen_of_it() -> None:
    """The row holds what the manifest will say."""
    world = World()
    facts = world.shards.put(PATH, shard_content(1, 2, 3))
    world.deliver(PATH)
    stored = row(world)
    assert stored is not None
    assert (ShardState.ACCEPTED, facts.etag, 3, facts.size_bytes) == (
        stored.state,
        stored.etag,
        stored.num_records,
        stored.size_bytes,
    )
    assert ["shard_accepted"] == world.actions(PATH)


def test_a_flipped_bit_is_rejected_naming_record_and_offset() -> None:
    """The owner must be able to find it."""
    world = World()
    content = bytearray(shard_content(1, 2))
    content[-6] ^= 1
    world.deliver(world.put(NAME, bytes(content)))
    stored = row(world)
    assert stored is not None
    (reason,) = stored.reasons
    assert (ShardState.REJECTED, ReasonCode.PAYLOAD_CRC, NAME, 1) == (
        stored.state,
        reason.code,
        reason.shard,
        reason.record_index,
    )
    assert reason.byte_offset == len(content) // 2


def test_a_good_shard_over_a_bad_one_is_accepted() -> None:
    """This is how an owner corrects a version."""
    world = World()
    world.deliver(world.put(NAME, b"not a shard"))
    world.deliver(world.put(NAME))
    stored = row(world)
    assert ShardState.ACCEPTED == (stored and stored.state)


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"event_type": "Microsoft.Storage.BlobDeleted"}, "Microsoft.Storage.BlobDeleted changes nothing"),
        ({"api": "CreateFile"}, "'CreateFile' leaves the blob incomplete"),
    ],
)
def test_an_event_that_is_none_of_ours_is_suppressed_with_its_reason(members: dict[str, str], reason: str) -> None:
    """A user can ask why nothing happened."""
    world = World()
    world.put(NAME)
    world.deliver(PATH, **members)
    assert reason in only_reason(world)
    assert row(world) is None


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("digits/v1/", "is not a shard's path"),
        (f"digits/2026 11 20/{NAME}", "is not a version"),
        (f"digits/../{NAME}", "is not a version"),
        ("digits/v1/README.md", "is not a shard name"),
        ("digits/v1/train-00002-of-00002.tfrecord", "shard index 2 is not below 2"),
        ("digits/v1/test-00000-of-00002.tfrecord", "has splits train, validation, not test"),
    ],
)
def test_a_path_that_means_no_shard_is_suppressed_with_its_reason(path: str, reason: str) -> None:
    """Anything else in the folder of a version is ignored, and says so."""
    world = World()
    world.shards.put(path, shard_content(1))
    world.deliver(path)
    assert reason in only_reason(world, path)


@pytest.mark.parametrize(
    ("container", "path"),
    [
        ("other", PATH),
        ("datasets", "digits"),
        ("datasets", "digits/v1/_temporary/0/part-00000"),
        ("datasets", f"letters/v1/{NAME}"),
    ],
)
def test_blobs_outside_every_dataset_are_counted_by_the_day(container: str, path: str) -> None:
    """There is one row for each day and no history, however much is written there."""
    world = World()
    for _ in range(3):
        world.deliver(path, container=container)
    world.clock.move(days=1)
    world.deliver(path, container=container)
    assert ({"2026-11-20": 3, "2026-11-21": 1}, []) == (
        world.ledger.counter_rows[OTHERS_UPLOADS],
        world.actions(path),
    )


def test_a_blob_that_is_gone_is_suppressed() -> None:
    """The event was true when it was sent."""
    world = World()
    world.deliver(PATH)
    assert "the blob is gone" == only_reason(world)


def test_a_second_delivery_does_not_validate_again() -> None:
    """Identity of a write is path and ETag."""
    world = World()
    world.services = replace(world.services, validate=(validator := Interrupted(lambda: None)))
    path = world.put(NAME)
    world.deliver(path)
    world.deliver(path, event_id="another")
    assert (1, ["shard_accepted", "event_suppressed"]) == (validator.calls, world.actions(path))


def test_a_shard_overwritten_while_it_is_read_is_judged_again() -> None:
    """Never half of one content and half of another."""
    world = World()
    world.services = replace(world.services, validate=(validator := Interrupted(lambda: void(world.put(NAME)))))
    world.deliver(world.put(NAME))
    stored, facts = row(world), world.shards.facts(PATH)
    assert stored is not None
    assert facts is not None
    assert (2, facts.etag) == (validator.calls, stored.etag)


def test_a_shard_that_never_rests_is_left_to_its_next_delivery() -> None:
    """Rounds are bounded: another upload brings another event."""
    world = World()
    world.services = replace(world.services, validate=Interrupted(lambda: void(world.put(NAME)), times=99))
    with pytest.raises(ServiceUnavailableError, match="overwritten 5 times"):
        world.deliver(world.put(NAME))


def test_a_shard_deleted_while_it_is_read_has_no_verdict() -> None:
    """Nothing is left that could be judged."""
    world = World()
    world.services = replace(world.services, validate=Interrupted(lambda: world.shards.delete(PATH)))
    world.deliver(world.put(NAME))
    assert ("the blob was deleted while it was read", None) == (only_reason(world), row(world))


def test_a_store_that_does_not_answer_has_the_event_delivered_again() -> None:
    """No verdict is better than a wrong one."""
    world = World()

    def silence() -> None:
        raise SourceUnavailableError("storage answered 503")

    world.services = replace(world.services, validate=Interrupted(silence))
    with pytest.raises(ServiceUnavailableError, match=r"could not be read: storage answered 503"):
        world.deliver(world.put(NAME))
    assert row(world) is None


def late_verdict(late: Callable[[], object]) -> Validate:
    """Validate, and after the first validation let something happen before its verdict is recorded."""
    waiting = [late]

    def validate(source: ShardSource, requirements: DataRequirements) -> ShardVerdict:
        verdict = validate_shard(source, requirements)
        if waiting:
            waiting.pop()()
        return verdict

    return validate


def test_the_last_writer_looks_again() -> None:
    """A slow handler must not leave its verdict on old content over a quick handler's on the new one."""
    world = World()
    quick = lambda: world.deliver(world.put(NAME, shard_content(9)))  # noqa: E731
    world.services = replace(world.services, validate=late_verdict(quick))
    world.deliver(world.put(NAME, shard_content(1)))
    stored, facts = row(world), world.shards.blobs[PATH][0]
    actions = ["shard_accepted"] * 3  # the quick handler's, the slow one's, and that of its second look
    assert (facts.etag, actions) == (stored and stored.etag, world.actions(PATH))


def test_a_first_verdict_needs_no_second_look() -> None:
    """No newer verdict was replaced, and the handler that judges newer content replaces this one."""
    world = World()
    overwrite = lambda: world.put(NAME, shard_content(9))  # noqa: E731
    world.services = replace(world.services, validate=late_verdict(overwrite))
    world.deliver(world.put(NAME, shard_content(1)))
    assert ["shard_accepted"] == world.actions(PATH)
    world.deliver(PATH)
    stored, facts = row(world), world.shards.blobs[PATH][0]
    assert (facts.etag, ["shard_accepted"] * 2) == (stored and stored.etag, world.actions(PATH))


def test_a_contradictory_number_of_shards_is_rejected_and_harms_no_other_shard() -> None:
    """The first shard's N stands; the other file is rejected with its reason and its position stays free."""
    world = World()
    world.upload_shards(NAME, "train-00001-of-00003.tfrecord")
    (entry,) = [d for d in world.ledger.history(str(VERSION)) if d.action == "shard_rejected"]
    position = world.ledger.shard(VERSION, "train", 1)
    assert (ReasonCode.SET_SIZE_CONTRADICTORY, None) == (entry.details["code"], position)
    world.upload_shards(*ALL_SHARDS[1:])
    assert world.ledger.latest_generation(VERSION) is not None


def test_two_files_for_one_position_are_distinguished() -> None:
    """The first one stands while it is there; once it is deleted the other may have the position."""
    world = World()
    other = NAME.removesuffix(".tfrecord")
    world.upload_shards(NAME, other)
    stored = row(world)
    assert (NAME, ["shard_rejected"]) == (stored and stored.name, world.actions(f"digits/v1/{other}"))
    world.shards.delete(PATH)
    world.deliver(f"digits/v1/{other}")
    stored = row(world)
    assert other == (stored and stored.name)


def void(_: object) -> None:
    """Take a value and give none."""


WRONG = ("train-00000-of-00004.tfrecord", "train-00003-of-00004.tfrecord")


def rejections(world: World) -> list[str]:
    """What was said of shards that contradict the claim."""
    return [d.reason for d in world.ledger.history(str(VERSION)) if d.action == "shard_rejected"]


def delete(world: World, *names: str) -> None:
    """The data owner deletes shards; that is not notified."""
    for name in names:
        world.shards.delete(f"{VERSION}/{name}")


def test_a_contradiction_names_the_shards_that_hold_the_claim() -> None:
    """It names what to delete, on either side."""
    world = World()
    world.upload_shards(*WRONG, TRAIN_SHARDS[0])
    (reason,) = rejections(world)
    assert f"says -of-00002, but {WRONG[0]}, {WRONG[1]} came first and split train has 4 shards" in reason


def test_one_shard_left_holds_the_claim() -> None:
    """This includes a rejected shard, which its owner may correct."""
    world = World()
    world.upload_shards(WRONG[0])
    world.deliver(world.put(WRONG[1], b"broken"))
    delete(world, WRONG[0])
    world.upload_shards(TRAIN_SHARDS[0])
    assert (4, 1) == (world.ledger.split_sizes(VERSION)["train"], len(rejections(world)))


def test_the_claim_moves_once_its_shards_are_deleted() -> None:
    """The next shard under another N claims its own, and the set closes."""
    world = World()
    world.upload_shards(*WRONG)
    delete(world, *WRONG)
    world.upload_shards(*ALL_SHARDS)
    generation = world.ledger.latest_generation(VERSION)
    assert (2, 3, 1) == (
        world.ledger.split_sizes(VERSION)["train"],
        generation and generation.num_shards,
        world.actions(VERSION).count("split_size_moved"),
    )


def test_verdicts_on_the_deleted_shards_count_no_more() -> None:
    """They count neither for nor against the new set, and its description omits them."""
    world = World()
    world.upload_shards(*WRONG)
    delete(world, *WRONG)
    world.upload_shards(TRAIN_SHARDS[1])
    counts = [world.ledger.accepted_in_bucket(VERSION, "train", bucket) for bucket in range(4)]
    old = [world.ledger.shard(VERSION, "train", index) for index in (0, 3)]
    assert ([0, 1, 0, 0], [ShardState.REJECTED] * 2) == (counts, [row and row.state for row in old])
    train, _ = describe_version(VERSION, world.services).splits
    assert (1, ("train-00000-of-00002",), ()) == (train.accepted, train.missing, train.rejected)


def test_a_shard_of_the_former_number_that_is_undeleted_is_judged_again() -> None:
    """It has its old ETag, on which the verdict was taken back."""
    world = World()
    world.upload_shards(*WRONG)
    former = {name: world.shards.blobs[f"{VERSION}/{name}"] for name in WRONG}
    delete(world, *WRONG)
    world.upload_shards(TRAIN_SHARDS[0])
    delete(world, TRAIN_SHARDS[0])
    world.shards.blobs |= {f"{VERSION}/{name}": blob for name, blob in former.items()}
    world.upload_shards("train-00001-of-00004.tfrecord", "train-00002-of-00004.tfrecord", *VALIDATION_SHARDS)
    world.clock.move(minutes=10)
    sweep(world.services)
    world.serve_requests()
    generation = world.ledger.latest_generation(VERSION)
    assert 5 == (generation and generation.num_shards)


def test_a_sweep_finds_the_shards_that_were_refused_before() -> None:
    """They came first, were refused, and the wrong one was deleted later: no event tells of that."""
    world = World()
    world.upload_shards(WRONG[0], *ALL_SHARDS)
    assert world.ledger.latest_generation(VERSION) is None
    delete(world, WRONG[0])
    world.clock.move(minutes=10)
    sweep(world.services)
    world.serve_requests()
    generation = world.ledger.latest_generation(VERSION)
    assert 3 == (generation and generation.num_shards)


def test_while_the_claim_stands_a_sweep_adds_nothing_to_the_history() -> None:
    """Every five minutes would be too often."""
    world = World()
    world.upload_shards(WRONG[0], *ALL_SHARDS)
    lines = len(world.actions(VERSION))
    for _ in range(3):
        world.clock.move(minutes=10)
        sweep(world.services)
    assert lines == len(world.actions(VERSION))


def test_other_splits_keep_theirs() -> None:
    """A claim is of one split of one version."""
    world = World()
    world.upload_shards(*WRONG, *VALIDATION_SHARDS)
    delete(world, *WRONG)
    world.upload_shards(TRAIN_SHARDS[0])
    stored = world.ledger.shard(VERSION, "validation", 0)
    assert ({"train": 2, "validation": 1}, ShardState.ACCEPTED) == (
        world.ledger.split_sizes(VERSION),
        stored and stored.state,
    )


@pytest.mark.parametrize("late_index", [0, 1])
def test_a_verdict_that_comes_late_for_the_former_number_does_not_close(late_index: int) -> None:
    """A slow handler writes it after the claim has moved; a shard that is gone stands in for none."""
    world = World()
    name = f"train-{late_index:05d}-of-00004.tfrecord"
    world.upload_shards(name)
    late = world.ledger.shard(VERSION, "train", late_index)
    delete(world, name)
    world.upload_shards(*[n for n in ALL_SHARDS if f"train-{late_index:05d}" not in n])
    assert late is not None
    world.ledger.record_shard(late)
    world.clock.move(minutes=10)
    sweep(world.services)
    assert world.ledger.latest_generation(VERSION) is None
    world.upload_shards(TRAIN_SHARDS[late_index])
    assert world.ledger.latest_generation(VERSION) is not None


def test_a_verdict_that_comes_late_for_a_higher_former_number_does_not_keep_the_version_open() -> None:
    """No shard of the new set has its position, so that no verdict replaces it."""
    world, name = World(), "train-00017-of-00032.tfrecord"
    world.upload_shards(name)
    late = world.ledger.shard(VERSION, "train", 17)
    delete(world, name)
    world.upload_shards(*TRAIN_SHARDS)
    assert late is not None
    world.ledger.record_shard(late)
    world.upload_shards(*VALIDATION_SHARDS)
    generation, known = world.ledger.latest_generation(VERSION), world.ledger.shard(VERSION, "train", 17)
    assert (3, ShardState.REJECTED, "") == (
        generation and generation.num_shards,
        known and known.state,
        known and known.etag,
    )


def put_packed(world: World, content: bytes, sources: list[str]) -> None:
    """Put a shard, and a dataset.json that says what its records were packed from."""
    world.put(NAME, content)
    shard = {"name": NAME, "crc32c": f"{crc32c(content):08x}", "sources": sources}
    world.put("dataset.json", json.dumps({"splits": {"train": {"shards": [shard]}}}).encode())


def test_a_rejected_record_is_named_by_the_file_that_it_was_packed_from() -> None:
    """The name is in the verdict and in the history."""
    world = World()
    put_packed(world, shard_content(1, 12, 3), ["one.png", "twelve\n.png", "three.png"])
    world.deliver(PATH)
    verdict, (entry,) = row(world), world.ledger.history(PATH)
    assert verdict is not None
    expected = f"{NAME}, record 1 at byte 65, feature label: expected 0 to 9, got 12 (packed from twelve\\n.png)"
    assert [expected] == [reason.message for reason in verdict.reasons] == [entry.reason]


@pytest.mark.parametrize("problem", ["unreadable", "too large", "of other content", "not JSON"])
def test_a_rejection_needs_no_name_of_its_source(monkeypatch: pytest.MonkeyPatch, problem: str) -> None:
    """The verdict is the same without it, and is not postponed."""
    world, path = World(), f"{VERSION}/dataset.json"
    put_packed(world, shard_content(1, 12, 3), ["one.png", "twelve.png", "three.png"])
    if problem == "of other content":
        world.put(NAME, shard_content(2, 12, 3))
    elif problem == "not JSON":
        world.shards.put(path, b"{")
    elif problem == "too large":
        monkeypatch.setattr("function_app.ingest.rejections.MAX_FILE_BYTES", 10)
    else:
        facts_of = world.shards.facts

        def facts(asked: str, *, content_up_to: int = 0) -> BlobFacts | None:
            if asked == path:
                raise ServiceUnavailableError("503")
            return facts_of(asked, content_up_to=content_up_to)

        monkeypatch.setattr(world.shards, "facts", facts)
    world.deliver(PATH)
    verdict = row(world)
    assert verdict is not None
    assert [True] == [reason.message.endswith("got 12") for reason in verdict.reasons]
