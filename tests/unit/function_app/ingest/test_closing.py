"""Closing: a version closes exactly once for each content, cheaply, whichever shard comes last."""

from __future__ import annotations

import gzip
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from function_app.domain.errors import ServiceUnavailableError, VersionNotWholeError
from function_app.domain.events import TrainingRequest
from function_app.domain.records import DatasetVersion, Generation, ShardRecord
from function_app.domain.run_states import RunState
from function_app.explain.description import describe_version
from function_app.ingest.closing import accepted_content, close_version
from function_app.ingest.uploads import OTHERS_UPLOADS
from function_app.runs.requests import request_run
from function_app.runs.submission import handle_request
from function_app.services import IngestServices
from function_app.sweep.sweep import sweep
from function_app.testing.ledger import MemoryLedger
from shared.manifest import Manifest
from tests.support.world import ALL_SHARDS, TRAIN_SHARDS, VALIDATION_SHARDS, VERSION, World, pipeline, shard_content


@pytest.mark.parametrize("order", list(itertools.permutations(ALL_SHARDS)))
def test_any_order_closes_once(order: tuple[str, ...]) -> None:
    """The last one closes, whichever that is."""
    world = World()
    world.upload_shards(*order)
    assert ([1], 1) == ([g.number for g in world.ledger.generation_rows.values()], len(world.requests.messages))


def test_the_process_that_closes_a_version_starts_its_run() -> None:
    """The function of the queue may have no instance yet; it gets nothing to do."""
    world = World()
    world.services = replace(world.services, start=handle_request)
    world.upload_shards(*ALL_SHARDS)
    assert [world.only_run().run_id] == world.jobs.submissions
    assert ([], {}) == (world.requests.messages, world.requests.taken)


def test_a_run_that_cannot_be_started_yet_is_left_to_the_queue() -> None:
    """The shard's message is done; that of the run appears a minute later."""
    world = World()

    def fail(request: TrainingRequest, services: IngestServices) -> None:
        raise ServiceUnavailableError(f"Azure ML does not answer: {request} {services.start_patience}")

    world.services = replace(world.services, start=fail)
    world.upload_shards(*ALL_SHARDS)
    before = list(world.jobs.submissions)
    world.serve_requests()
    assert ([], [world.only_run().run_id]) == (before, world.jobs.submissions)


@pytest.mark.parametrize("missing", ALL_SHARDS)
def test_a_version_that_lacks_one_shard_stays_open(missing: str) -> None:
    """Every required split needs all of its shards."""
    world = World()
    world.upload_shards(*(name for name in ALL_SHARDS if name != missing))
    assert (None, []) == (world.ledger.latest_generation(VERSION), world.requests.messages)


def test_the_manifest_lists_the_shards_and_is_written_before_the_closing_is_known() -> None:
    """When the generation's row can be read, its manifest exists."""
    world = World()
    world.upload_shards(*ALL_SHARDS)
    generation = world.ledger.latest_generation(VERSION)
    assert generation is not None
    manifest = Manifest.from_json(world.documents.documents[generation.manifest_path])
    assert (list(ALL_SHARDS), generation.fingerprint) == ([s.name for s in manifest.shards], manifest.fingerprint)
    assert f"manifests/digits/v1/g1-{generation.fingerprint[:12]}.json" == generation.manifest_path
    splits = manifest.statistics["splits"]
    assert {split: manifest.num_records(split) for split in ("train", "validation")} == {
        split: part["num_records"] for split, part in splits.items()
    }


def test_a_rejected_shard_keeps_the_version_open_until_it_is_corrected() -> None:
    """Bad data starts no training."""
    world = World()
    world.deliver(world.put(TRAIN_SHARDS[0], b"broken"))
    world.upload_shards(*ALL_SHARDS[1:])
    assert world.ledger.latest_generation(VERSION) is None
    world.upload_shards(TRAIN_SHARDS[0])
    assert world.ledger.latest_generation(VERSION) is not None


def test_the_same_bytes_uploaded_again_change_nothing() -> None:
    """The fingerprint is of the content, not of the upload."""
    world = World()
    world.upload_version()
    world.upload_shards(*ALL_SHARDS)
    world.serve_requests()
    assert (1, 1) == (len(world.ledger.generation_rows), len(world.ledger.runs()))


def test_a_changed_shard_opens_the_next_generation_and_recipients_are_notified() -> None:
    """The default: nothing is trained behind anybody's back."""
    world = World()
    world.upload_version()
    world.deliver(world.put(TRAIN_SHARDS[0], shard_content(5)))
    world.serve_requests()
    notified = [(n.recipient, n.outcome) for n in world.ledger.notifications(str(VERSION))]
    assert [1, 2] == [g.number for g in world.ledger.generation_rows.values()]
    assert (1, [("topic", "version_changed"), ("webhook:LANDFALL_WEBHOOK_PEOPLE", "version_changed")]) == (
        len(world.ledger.runs()),
        notified,
    )


def test_a_pipeline_may_have_a_change_trained() -> None:
    """on_change: train."""
    world = World()
    world.change_pipeline(on_change="train")
    world.upload_version()
    world.deliver(world.put(TRAIN_SHARDS[0], shard_content(5)))
    world.serve_requests()
    assert {1, 2} == {run.generation for run in world.ledger.runs()}


def test_a_late_duplicate_reads_no_shard() -> None:
    """Ten thousand duplicates after a closing must not read ten thousand shards each."""
    ledger = CountingLedger()
    world = World(ledger=ledger)
    world.upload_shards(*TRAIN_SHARDS)
    world.clock.move(minutes=1)
    world.upload_shards(*VALIDATION_SHARDS)
    world.serve_requests()
    ledger.calls.clear()
    world.deliver(f"digits/v1/{TRAIN_SHARDS[0]}")
    assert (0, 1) == (ledger.calls["shards"], ledger.calls["accepted_in_bucket"])


def test_a_shard_costs_the_same_in_a_large_version() -> None:
    """Table operations per shard do not grow with the number of shards."""
    per_shard = [_operations_per_shard(num_shards) for num_shards in (64, 256)]
    assert per_shard[1] <= per_shard[0]


def test_closing_a_version_that_is_open_is_no_closing() -> None:
    """The sweep asks about every version."""
    world = World()
    world.upload_shards(TRAIN_SHARDS[0])
    assert close_version(pipeline(), VERSION, world.services) is None


def test_a_handler_with_older_verdicts_does_not_close_after_one_with_newer() -> None:
    """The handler is overtaken between its reading of the verdicts and its closing."""
    ledger = OvertakenLedger()
    world = World(ledger=ledger)
    world.upload_shards(*ALL_SHARDS)
    world.deliver(world.put(TRAIN_SHARDS[0], shard_content(7)))
    ledger.generation_rows.pop((VERSION, 2))  # its handler is the one that is overtaken
    ledger.meanwhile = lambda: world.deliver(world.put(TRAIN_SHARDS[1], shard_content(7, 7)))
    close_version(pipeline(), VERSION, world.services)
    newest, latest = accepted_content(ledger.shards(VERSION), pipeline()), ledger.latest_generation(VERSION)
    assert latest is not None
    assert (2, newest) == (latest.number, (latest.num_shards, latest.fingerprint))


class OvertakenLedger(MemoryLedger):
    """The double, in which something happens right after a handler has read the verdicts of a version."""

    meanwhile: Callable[[], object] | None = None

    def shards(self, version: DatasetVersion) -> Iterator[ShardRecord]:
        """See ports.ShardLedger."""
        rows = list(super().shards(version))
        happen, self.meanwhile = self.meanwhile, None
        if happen is not None:
            happen()
        return iter(rows)


class CountingLedger(MemoryLedger):
    """The double, counting the calls of its methods."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        super().__init__()

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if callable(value) and not name.startswith("_"):
            self.calls[name] += 1
        return value


def _operations_per_shard(num_shards: int) -> float:
    ledger = CountingLedger()
    world = World(ledger=ledger)
    world.upload_shards("validation-00000-of-00001.tfrecord")
    world.upload_shards(*(f"train-{index:05d}-of-{num_shards:05d}.tfrecord" for index in range(num_shards)))
    assert world.ledger.latest_generation(VERSION) is not None
    return ledger.calls.total() / num_shards


COUNTS = "digits/v1/dataset.json"


def stated(train: list[int], validation: list[int]) -> bytes:
    """A dataset.json."""
    splits = {"train": train, "validation": validation}
    members = {name: {"shards": [{"num_records": count} for count in counts]} for name, counts in splits.items()}
    return json.dumps({"format_version": 1, "splits": members}).encode()


def counting_world(**changes: Any) -> World:
    """A world whose pipeline says how counts are to be treated."""
    world = World()
    data = pipeline().data.model_copy(update=changes)
    world.change_pipeline(data=data)
    return world


def upload_with_counts(world: World) -> None:
    """Land a version with 1 and 2 records for training, 3 for validation."""
    contents = {TRAIN_SHARDS[0]: (1,), TRAIN_SHARDS[1]: (2, 3), VALIDATION_SHARDS[0]: (4, 5, 6)}
    for name, labels in contents.items():
        world.deliver(world.put(name, shard_content(*labels)))


def refusals(world: World) -> list[list[str]]:
    """The messages of every refusal in the version's history."""
    return [d.details["messages"] for d in world.ledger.history(str(VERSION)) if d.action == "set_rejected"]


def test_the_same_content_under_two_indices_keeps_a_version_open() -> None:
    """One file was uploaded twice, and another one not at all."""
    world = World()
    world.upload_shards(TRAIN_SHARDS[0], *VALIDATION_SHARDS)
    _, content = world.shards.blobs[f"digits/v1/{TRAIN_SHARDS[0]}"]
    world.deliver(world.put(TRAIN_SHARDS[1], content))
    assert (None, []) == (world.ledger.latest_generation(VERSION), world.requests.messages)
    assert "different content in every shard" in refusals(world)[0][0]
    assert ["set_rejected"] * 2 == [n.outcome for n in (*world.topic.received, *world.people.received)]


def test_a_refusal_is_notified_once_however_often_it_is_repeated() -> None:
    """Deliveries and sweeps repeat it; the history and the notifications do not."""
    world = counting_world(counts="required")
    upload_with_counts(world)
    for _ in range(3):
        world.deliver(f"digits/v1/{TRAIN_SHARDS[0]}")
        world.clock.move(minutes=5)
        sweep(world.services)
    assert (1, 1) == (len(refusals(world)), len(world.topic.received))


def test_a_corrected_set_closes() -> None:
    """The refusal is history then."""
    world = World()
    world.upload_shards(TRAIN_SHARDS[0], *VALIDATION_SHARDS)
    _, content = world.shards.blobs[f"digits/v1/{TRAIN_SHARDS[0]}"]
    world.deliver(world.put(TRAIN_SHARDS[1], content))
    world.upload_shards(TRAIN_SHARDS[1])
    world.serve_requests()
    assert ((), RunState.SUBMITTED) == (describe_version(VERSION, world.services).refusal, world.only_run().state)


def test_counts_that_are_required_may_come_last() -> None:
    """Their own upload closes the version."""
    world = counting_world(counts="required")
    upload_with_counts(world)
    assert ["counts: required" in messages[0] for messages in refusals(world)] == [True]
    world.shards.put(COUNTS, stated([1, 2], [3]))
    world.deliver(COUNTS)
    assert world.ledger.latest_generation(VERSION) is not None


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        (stated([1, 1], [3]), "1 records, as dataset.json states, got 2 records"),
        (b"{", "dataset.json: record counts of shards cannot be read"),
    ],
)
def test_counts_that_differ_or_cannot_be_read_are_said(counts: bytes, message: str) -> None:
    """Stated counts are binding."""
    world = World()
    world.shards.put(COUNTS, counts)
    upload_with_counts(world)
    assert message in refusals(world)[0][0]


def test_counts_may_be_ignored() -> None:
    """The pipeline must say so."""
    world = counting_world(counts="ignore")
    world.shards.put(COUNTS, b"{")
    upload_with_counts(world)
    assert world.ledger.latest_generation(VERSION) is not None


@pytest.mark.parametrize(
    ("counts", "problem"),
    [
        (b'{"text": "caf\xe9' + b"x" * 200_000 + b'"}', "can't decode byte 0xe9 in position 13"),
        (b'{"format_version": "' + b"x" * 200_000 + b'"}', "format_version: expected 1, got 'xxx"),
    ],
)
def test_counts_that_cannot_be_read_refuse_the_set_without_quoting_the_file(counts: bytes, problem: str) -> None:
    """The file may have megabytes; a notification and an entry of the history have room for less."""
    world = counting_world()
    world.shards.put(COUNTS, counts)
    upload_with_counts(world)
    ((message,),) = refusals(world)
    assert problem in message
    assert len(message) < 500
    assert ["set_rejected"] == [sent.outcome for sent in world.topic.received]


def test_counts_of_a_dataset_without_a_pipeline_are_an_event_as_any_other() -> None:
    """They are only counted, because no pipeline expects anything there."""
    world = World()
    world.deliver("letters/v1/dataset.json")
    assert {"2026-11-20": 1} == world.ledger.counter_rows[OTHERS_UPLOADS]


def test_counts_that_close_nothing_are_in_the_history() -> None:
    """An owner who uploads them early can see that they were read."""
    world = World()
    world.deliver("digits/v1/dataset.json")
    (line,) = world.ledger.history("digits/v1/dataset.json")
    expected = ("counts_stated", "checked its version again: not complete, or refused as a set")
    assert expected == (line.action, line.reason)


def test_asking_for_a_run_on_a_refused_set_says_why() -> None:
    """Nothing is missing, and that is not the reason."""
    world = counting_world(counts="required")
    world.upload_shards(*ALL_SHARDS)
    with pytest.raises(VersionNotWholeError, match="refused as a set for 1 reasons") as caught:
        request_run(VERSION, {}, trigger="http", services=world.services)
    assert "record counts in dataset.json" in caught.value.missing[0]


def test_all_reasons_are_said_and_not_the_first() -> None:
    """They are in the history, the notifications and the API: equal content and a wrong count, not a small shard."""
    world = counting_world(small_shard_ratio=0.5)
    sizes = {f"train-{index:05d}-of-00004.tfrecord": count for index, count in enumerate((4, 4, 4, 1))}
    for index, (name, count) in enumerate(sizes.items()):
        label = 1 if index == 1 else index
        world.deliver(world.put(name, shard_content(*[label] * count)))
    world.deliver(world.put(TRAIN_SHARDS[0].replace("-of-00002", "-of-00004"), shard_content(1, 1, 1, 1)))
    world.shards.put(COUNTS, stated([4, 4, 3, 1], [3]))
    world.deliver(world.put(VALIDATION_SHARDS[0], shard_content(4, 5, 6)))
    codes = {"set_same_content", "set_count_differs"}
    (messages,) = refusals(world)
    reasons = world.topic.received[-1].content["reasons"]
    assert (codes, messages) == ({reason["code"] for reason in reasons}, [reason["message"] for reason in reasons])
    assert tuple(messages) == describe_version(VERSION, world.services).refusal


def test_other_reasons_for_the_same_shards_are_notified_again() -> None:
    """dataset.json was corrected, and it is still wrong in another way."""
    world = World()
    world.shards.put(COUNTS, stated([1, 1], [3]))
    upload_with_counts(world)
    for counts in (stated([1, 3], [3]), stated([1, 3], [3])):
        world.shards.put(COUNTS, counts)
        world.deliver(COUNTS)
    assert (2, 2) == (len(refusals(world)), len(world.topic.received))


def upload_mixed_formats(world: World) -> None:
    """Land a plain shard of the training split, and all others compressed."""
    for label, name in enumerate(ALL_SHARDS):
        content = shard_content(*[label] * 3)
        world.deliver(world.put(name, content if name == TRAIN_SHARDS[0] else gzip.compress(content)))


def test_plain_and_compressed_shards_do_not_make_one_version() -> None:
    """Each is good; a reader expects one compression for all of them. The reason stands among all others."""
    world = World()
    world.shards.put(COUNTS, b"{")
    upload_mixed_formats(world)
    reasons = world.topic.received[-1].content["reasons"]
    assert ["set_counts_unreadable", "set_formats_mixed"] == [reason["code"] for reason in reasons]
    others = f"{TRAIN_SHARDS[0]}: expected tfrecord gzip, as in most shards, got tfrecord: {TRAIN_SHARDS[0]}"
    assert (others, None) == (refusals(world)[0][1], world.ledger.latest_generation(VERSION))


def test_a_version_whose_plain_shard_is_compressed_too_closes() -> None:
    """The refusal said which one it is."""
    world = World()
    upload_mixed_formats(world)
    world.deliver(world.put(TRAIN_SHARDS[0], gzip.compress(shard_content(0, 0, 0))))
    assert world.ledger.latest_generation(VERSION) is not None


def test_verdicts_that_do_not_say_their_format_are_no_reason_to_refuse() -> None:
    """They were written before it was kept, and their shards are not read again."""
    world = World()
    upload_mixed_formats(world)
    row = world.ledger.shard_rows[VERSION, "train", 0]
    world.ledger.shard_rows[VERSION, "train", 0] = replace(row, content_format=None)
    sweep(world.services)
    assert world.ledger.latest_generation(VERSION) is not None


def test_tfds_counts_are_read_too() -> None:
    """TensorFlow Datasets writes them beside its shards; they may arrive at any time."""
    world = counting_world(counts="required")
    upload_with_counts(world)
    splits = [{"name": "train", "shardLengths": ["1", "2"]}, {"name": "validation", "shardLengths": ["3"]}]
    world.shards.put("digits/v1/dataset_info.json", json.dumps({"splits": splits}).encode())
    world.deliver("digits/v1/dataset_info.json")
    assert world.ledger.latest_generation(VERSION) is not None


def upload_a_small_shard(world: World) -> None:
    """Land a whole version; the last of its four training shards has one record instead of four."""
    for index, count in enumerate((4, 4, 4, 1)):
        name = f"train-{index:05d}-of-00004.tfrecord"
        world.deliver(world.put(name, shard_content(*[index] * count)))
    world.deliver(world.put(VALIDATION_SHARDS[0], shard_content(4, 5, 6)))


def test_a_small_shard_is_a_warning_and_the_version_closes() -> None:
    """It can be trained; the closing's entry in the history names it."""
    world = counting_world(small_shard_ratio=0.5)
    upload_a_small_shard(world)
    closed = [entry for entry in world.ledger.history("digits/v1") if entry.action == "version_closed"]
    assert ([], 1, True) == (refusals(world), len(closed), "; 1 warnings: train-00003-of-00004" in closed[0].reason)


def test_recipients_are_warned_of_a_small_shard_once() -> None:
    """The notification names the shard and says that the version can be trained; the sweep does not repeat it."""
    world = counting_world(small_shard_ratio=0.5)
    upload_a_small_shard(world)
    sweep(world.services)
    (sent,) = (row for row in world.topic.received if row.outcome == "set_warned")
    small = "train-00003-of-00004.tfrecord"
    message = (
        f"{small}: expected at least 0.5 of the median of its split, 4 records (small_shard_ratio), got 1 records"
    )
    text = f"digits/v1 is complete and can be trained, with 1 warnings: {message}"
    assert (text, [("set_small_shard", small)]) == (
        sent.content["text"],
        [(reason["code"], reason["shard"]) for reason in sent.content["reasons"]],
    )


@pytest.mark.parametrize("is_written", [False, True])
def test_a_closing_that_dies_at_its_row_still_warns(monkeypatch: pytest.MonkeyPatch, is_written: bool) -> None:  # noqa: FBT001
    """The warning is written before the generation, whose writing may be the last thing that a process does."""
    world = counting_world(small_shard_ratio=0.5)
    add = world.ledger.add_generation

    def dies(generation: Generation) -> bool:
        if is_written:
            add(generation)
        raise KeyboardInterrupt

    monkeypatch.setattr(world.ledger, "add_generation", dies)
    with pytest.raises(KeyboardInterrupt):
        upload_a_small_shard(world)
    monkeypatch.undo()
    sweep(world.services)
    assert ["set_warned"] == [row.outcome for row in world.topic.received if row.subject == str(VERSION)]
