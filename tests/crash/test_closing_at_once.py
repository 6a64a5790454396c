"""The last verdict closes a version, without the sweep, in any order of events and with concurrent handlers."""

from __future__ import annotations

import gzip
import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pytest

from function_app.config.layouts import Layout
from function_app.domain.records import NUM_BUCKETS
from function_app.ingest import listed_layouts
from function_app.ingest.messages import handle_passed_on
from shared.errors import LandfallError
from shared.manifest import Manifest
from tests.crash.chain_model import in_bursts
from tests.crash.data_scenarios import commit, log_of
from tests.crash.port_calls import watched
from tests.support.interleaving import Turns
from tests.support.world import VALIDATION_SHARDS, VERSION, World, event_message, pipeline, shard_content

A, B, C, X = "train/a.tfrecord", "train/b.tfrecord", "validation/c.tfrecord", "train/x.tfrecord"
GOOD = {A: shard_content(1), B: shard_content(2, 3), C: shard_content(4, 5, 6)}
EMPTY = {"train/empty.tfrecord.gz": gzip.compress(b"")}
BESIDE = {X: shard_content(7)}
BROKEN = {X: b"broken"}
ORDERS = range(60)
"""Seeds of the order of handlers: enough to detect that one of the safeguards below is missing."""


@dataclass(frozen=True)
class Case:
    """The uploads in their order, and the names of the files that the version closes with."""

    layout: Layout
    uploads: Mapping[str, bytes]
    whole: Sequence[str]

    def world(self) -> World:
        """Return a world in which everything is uploaded and no event was delivered."""
        world = World()
        world.change_pipeline(data=pipeline().data.model_copy(update={"layout": self.layout}))
        for name, content in self.uploads.items():
            world.clock.move(seconds=2)
            world.put(name, content)
        return world


def sums(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the list that sha256sum writes of files."""
    lines = (f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in files.items())
    return {"SHA256SUMS": "".join(lines).encode()}


NAMES = ["train-00000-of-00002.tfrecord", "train-00001-of-00002.tfrecord", "validation-00000-of-00001.tfrecord"]
OVERWRITTEN = {log_of(0): commit(0, {A: GOOD[A], C: GOOD[C], **BESIDE}), log_of(1): commit(1, {B: GOOD[B]}, X)}
CASES = {
    "names": Case(Layout(), dict(zip(NAMES, GOOD.values(), strict=True)), NAMES),
    "marker": Case(Layout(kind="marker"), {**GOOD, "_SUCCESS": b""}, [A, B, C]),
    "marker, and a file without records": Case(Layout(kind="marker"), {**GOOD, **EMPTY, "_SUCCESS": b""}, [A, B, C]),
    "list": Case(Layout(kind="manifest"), {**GOOD, **sums(GOOD)}, [A, B, C]),
    "list, and a file beside it": Case(Layout(kind="manifest"), {**GOOD, **BESIDE, **sums(GOOD)}, [A, B, C]),
    "list, and a listed file without records": Case(
        Layout(kind="manifest"), {**GOOD, **EMPTY, **sums({**GOOD, **EMPTY})}, [A, B, C]
    ),
    "table, and a rejected file that was removed": Case(
        Layout(kind="delta"), {**GOOD, **BROKEN, **OVERWRITTEN}, [A, B, C]
    ),
    "table, and a removed file that is not as stated": Case(
        Layout(kind="delta"), {**GOOD, X: shard_content(7, 8), **OVERWRITTEN}, [A, B, C]
    ),
}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def closed_with(world: World) -> list[str]:
    """Return the names in the manifest of the newest closing; none if there is no closing."""
    generations = world.ledger.generations(VERSION)
    if not generations:
        return []
    manifest = Manifest.from_json(world.documents.documents[generations[0].manifest_path])
    return [shard.name for shard in manifest.shards]


def at_once(case: Case, order: int) -> list[str]:
    """Handle all events concurrently; return the files that the version is then closed with."""
    world, turns = case.world(), Turns()
    world.services = watched(world.services, turns.around)
    handlers: list[Callable[[], object]] = [
        lambda name=name: world.deliver(f"{VERSION}/{name}")  # type: ignore[misc]
        for name in case.uploads
    ]
    raised = turns.run(handlers, in_bursts(order))
    assert [] == [error for error in raised if not isinstance(error, LandfallError)]
    return closed_with(world)


@each_case
def test_any_order_of_events_closes_without_the_sweep(case: Case) -> None:
    """Each event is delivered once."""
    open_after = []
    orders = list(itertools.permutations(case.uploads))
    for order in orders[:: 1 + len(orders) // 120]:
        world = case.world()
        for name in order:
            world.deliver(f"{VERSION}/{name}")
        open_after += [] if closed_with(world) == case.whole else [order]
    assert [] == open_after


@each_case
def test_handlers_at_the_same_time_close_without_the_sweep(case: Case) -> None:
    """The handlers overtake each other at any call of the ledger and of storage."""
    assert [] == [order for order in ORDERS if at_once(case, order) != case.whole]


def test_a_version_that_is_not_looked_at_again_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a verdict between the check and the note would be missed."""
    monkeypatch.setattr(listed_layouts.Listing, "is_settled", True)
    cases = (case for case in CASES.values() if case.layout.has_any_names)
    assert any(at_once(case, order) != case.whole for case in cases for order in ORDERS)


@pytest.mark.parametrize("shared", [0, 1], ids=["each shard in one message", "a shard in both messages"])
def test_messages_of_several_shards_at_the_same_time_close_without_the_sweep(shared: int) -> None:
    """Another shard of their bucket comes alone; the other buckets are complete before."""
    num_shards = 4 * NUM_BUCKETS + 1
    names = [f"train-{index:05d}-of-{num_shards:05d}.tfrecord" for index in range(num_shards)]
    late = names[::NUM_BUCKETS]

    def small(paths: Sequence[str]) -> bytes:
        return event_message(paths, contentLength=100).encode()  # small shards share a transaction

    open_after = []
    for order in ORDERS[::3]:
        world, turns = World(), Turns()
        world.upload_shards(*VALIDATION_SHARDS, *(name for name in names if name not in late))
        paths = [world.put(name) for name in late]
        world.services = watched(world.services, turns.around)
        handlers: list[Callable[[], object]] = [
            partial(handle_passed_on, small(paths[:2]), world.services),
            partial(handle_passed_on, small(paths[2 - shared : 4]), world.services),
            partial(world.deliver, paths[4]),
        ]
        assert [] == turns.run(handlers, in_bursts(order))
        open_after += [] if closed_with(world) == sorted([*names, *VALIDATION_SHARDS]) else [order]
    assert [] == open_after
