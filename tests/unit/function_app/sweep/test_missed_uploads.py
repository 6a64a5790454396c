"""Missed shards become messages: many shards of one dataset hold up neither the sweep nor other datasets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from function_app.domain.errors import ServiceUnavailableError
from function_app.domain.events import read_uploads
from function_app.domain.records import BlobFacts
from function_app.ports import passed_over
from function_app.services import TimeBudget
from function_app.sweep.missed_uploads import BUDGET_S, SHARDS_OF_A_TURN
from function_app.sweep.sweep import run_sweep
from function_app.testing.ledger import MemoryLedger
from function_app.testing.stores import MemoryShardStore
from tests.support.world import World

MANY = SHARDS_OF_A_TURN * 3


def missing(world: World, number: int, dataset: str, content: bytes | None = None) -> list[str]:
    """Upload shards whose events are lost; return their paths."""
    names = [f"train-{index:05d}-of-{number:05d}.tfrecord" for index in range(number)]
    return [world.put(name, content, dataset=dataset) for name in names]


def messages(world: World) -> list[list[str]]:
    """Return the paths that each message names."""
    return [[upload.path for upload in read_uploads(message)] for message in world.uploads.messages]


def two_datasets() -> World:
    """A world with many missed shards of the digits, and one of the letters."""
    world = World()
    world.add_pipelines("letters")
    missing(world, MANY, "digits")
    missing(world, 1, "letters")
    world.clock.move(minutes=5)
    return world


def time_for_one_turn() -> TimeBudget:
    """The clock of one sweep, whose time is over after the first turn."""
    looks = iter([0.0, 0.0, *[BUDGET_S] * 100])
    return TimeBudget(seconds=lambda: next(looks))


def test_datasets_take_turns() -> None:
    """The one shard of the letters comes right after the first message of the digits, not after all of them."""
    world = two_datasets()
    assert MANY + 1 == run_sweep(world.services).shards_missed
    datasets = [paths[0].partition("/")[0] for paths in messages(world)]
    assert ["digits", "letters", "digits", "digits"] == datasets


def test_the_sweep_reads_no_shard() -> None:
    """It sends their messages; the executions of the queue judge them."""
    world = two_datasets()
    run_sweep(world.services)
    assert {} == world.ledger.shard_rows
    world.serve_requests()
    assert MANY + 1 == len(world.ledger.shard_rows)


def test_what_was_sent_is_not_sent_again_while_it_may_lie_in_the_queue() -> None:
    """The queue must not grow with every sweep while the app is busy; later the message may have been given up."""
    world = two_datasets()
    run_sweep(world.services)
    world.clock.move(minutes=5)
    assert 0 == run_sweep(world.services).shards_missed
    world.clock.move(minutes=6)
    assert MANY + 1 == run_sweep(world.services).shards_missed


def test_what_was_missed_since_is_sent_although_its_path_comes_before_what_was_sent() -> None:
    """Another version of the same dataset lost its event after the sweep before."""
    world = two_datasets()
    run_sweep(world.services)
    world.put("train-00000-of-00001.tfrecord", version="a-version")
    world.clock.move(minutes=5)
    assert 1 == run_sweep(world.services).shards_missed
    assert ["digits/a-version/train-00000-of-00001.tfrecord"] == messages(world)[-1]


def test_a_sweep_out_of_time_is_continued_by_the_next_one() -> None:
    """It goes on to its other work, and the next sweep sends what is behind the last message."""
    world = two_datasets()
    all_time = world.services
    world.services = replace(all_time, time_budget=time_for_one_turn())
    assert SHARDS_OF_A_TURN == run_sweep(world.services).shards_missed
    assert MANY + 1 - SHARDS_OF_A_TURN == run_sweep(all_time).shards_missed
    sent = [path for paths in messages(world) for path in paths]
    assert MANY + 1 == len(set(sent)) == len(sent)


def test_a_dataset_whose_listing_takes_all_the_time_does_not_starve_the_others() -> None:
    """Without time for a second dataset, each sweep begins with the one whose turn it was."""
    world = World()
    world.add_pipelines("letters", "signs")
    for dataset in ("digits", "letters", "signs"):
        missing(world, 1, dataset)
    world.clock.move(minutes=5)
    sent = list[list[str]]()
    for _ in range(3):
        world.services = replace(world.services, time_budget=time_for_one_turn())
        run_sweep(world.services)
        sent.append([paths[0].partition("/")[0] for paths in messages(world)])
    assert [["digits"], ["digits", "letters"], ["digits", "letters", "signs"]] == sent


def test_large_shards_fill_a_message_earlier() -> None:
    """One execution handles one message, and has a time limit."""
    world = World()
    missing(world, 3, "digits", bytes(40 << 20))
    world.clock.move(minutes=5)
    run_sweep(world.services)
    assert [2, 1] == [len(paths) for paths in messages(world)]


class OneUnlisted(MemoryShardStore):
    """Does not list the digits."""

    def list(self, prefix: str, *, unlisted: Callable[[str], object] = passed_over) -> Iterator[BlobFacts]:
        """See ShardStore."""
        if prefix.startswith("digits"):
            raise TypeError("no listing")
        return super().list(prefix, unlisted=unlisted)


class OneMarkUnread(MemoryLedger):
    """Cannot say what an earlier sweep sent of the digits."""

    def mark(self, name: str) -> str | None:
        """See Ledger."""
        if name == "missed/digits":
            raise ServiceUnavailableError("read mark: storage answered 503")
        return super().mark(name)


def test_a_dataset_whose_mark_cannot_be_read_holds_up_no_other() -> None:
    """Reading it is part of the dataset's own turn."""
    world = World(ledger=OneMarkUnread())
    world.add_pipelines("letters")
    missing(world, 1, "digits")
    missing(world, 1, "letters")
    world.clock.move(minutes=5)
    report = run_sweep(world.services)
    assert (1, ("read mark: storage answered 503",)) == (report.shards_missed, report.problems)


def test_a_dataset_that_cannot_be_listed_holds_up_no_other() -> None:
    """The report names the failure, an unexpected one too."""
    world = two_datasets()
    store = OneUnlisted()
    store.blobs = world.shards.blobs
    world.services = replace(world.services, shards=store)
    report = run_sweep(world.services)
    assert (1, ("TypeError: no listing",)) == (report.shards_missed, report.problems)
