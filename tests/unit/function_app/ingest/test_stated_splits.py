"""Lists that say of which split each file is, and how many records a split has: CSV files and those of the Hub."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from function_app.config.layouts import Layout
from function_app.explain.description import describe_version
from function_app.sweep.sweep import sweep
from shared.manifest import Manifest
from tests.support.world import VERSION, World, pipeline, shard_content

TABLE, README = "files.csv", "README.md"
FILES = {"a.tfrecord": "train", "b.tfrecord": "train", "c.tfrecord": "validation"}
LABELS = {"a.tfrecord": (1, 2, 3), "b.tfrecord": (4, 5), "c.tfrecord": (6,), "d.tfrecord": (7,)}


def world_of(manifest: str, splits: tuple[str, ...] = ("train", "validation"), **more: Any) -> World:
    """A world whose pipeline has a list of this name."""
    world = World()
    changed = {"layout": Layout(kind="manifest", manifest=manifest, **more), "splits": splits}
    world.change_pipeline(data=pipeline().data.model_copy(update=changed))
    return world


def table(files: dict[str, str]) -> bytes:
    """A CSV with a column for splits."""
    return "\n".join(["name,split", *(f"{name},{split}" for name, split in files.items())]).encode()


def readme(train: int = 5, validation: int = 1) -> bytes:
    """The metadata of a README, with patterns."""
    return f"""---
configs:
- config_name: default
  data_files:
  - {{split: train, path: '[ab].tfrecord'}}
  - {{split: validation, path: 'c*'}}
dataset_info:
  splits:
  - {{name: train, num_bytes: 77, num_examples: {train}}}
  - {{name: validation, num_bytes: 77, num_examples: {validation}}}
---
# About
""".encode()


def put(world: World, name: str, data: bytes | None = None) -> str:
    """Upload a file some seconds after the last one: storage states times in seconds."""
    world.clock.move(seconds=2)
    return world.put(name, shard_content(*LABELS[name]) if data is None else data)


def uploaded(world: World, manifest: str, content: bytes, *names: str) -> World:
    """Upload files, and their list last."""
    for name in names:
        world.deliver(put(world, name))
    world.deliver(put(world, manifest, content))
    return world


def closings(world: World) -> list[dict[str, str]]:
    """File → split of each closing, the first closing first."""
    generations = reversed(world.ledger.generations(VERSION))
    manifests = [Manifest.from_json(world.documents.documents[one.manifest_path]) for one in generations]
    return [{shard.name: shard.split for shard in manifest.shards} for manifest in manifests]


def missing(world: World) -> str:
    """What status names as missing."""
    return "\n".join(n for split in describe_version(VERSION, world.services).splits for n in split.missing)


@pytest.mark.parametrize(("name", "content"), [(TABLE, table(FILES)), (README, readme())])
def test_any_order_of_events_closes_once_with_the_splits_of_the_list(name: str, content: bytes) -> None:
    """Names and folders say nothing. The list's event may come before, between and after those of the files."""
    for order in list(itertools.permutations((*FILES, name)))[::3]:
        world = world_of(name)
        for each in (*FILES, name):
            put(world, each, content if each == name else None)
        for each in (*order, *order):
            world.deliver(f"{VERSION}/{each}")
        assert ([FILES], "") == (closings(world), missing(world))


def test_a_list_that_moves_a_file_to_another_split_opens_the_next_generation() -> None:
    """The files are the same, but what is trained on is not."""
    world = uploaded(world_of(TABLE), TABLE, table(FILES), *FILES)
    moved = FILES | {"b.tfrecord": "validation"}
    world.deliver(put(world, TABLE, table(moved)))
    world.deliver(put(world, TABLE, table(moved)))
    assert [FILES, moved] == closings(world)


def test_a_run_on_files_in_the_splits_of_their_list_goes_to_its_model() -> None:
    """Submission and end find the verdicts, whose splits are others."""
    world = uploaded(world_of(README), README, readme(), *FILES)
    world.serve_requests()
    assert "registered" == world.finish(world.only_run()).state


def test_the_path_comes_before_the_list_and_the_list_before_a_draw() -> None:
    """A path that contradicts the list keeps the version open."""
    shares = {"train": 0.5, "validation": 0.5}
    drawn = uploaded(world_of(TABLE, shares=shares), TABLE, table(FILES), *FILES)
    by_pattern = uploaded(world_of(TABLE, patterns={"train": "[abc]*"}), TABLE, table(FILES), *FILES)
    line = "line 4: c.tfrecord is in split train by its path, not in validation; move it, or correct the list"
    assert ([FILES], [], True) == (closings(drawn), closings(by_pattern), line in missing(by_pattern))


def test_a_file_without_a_split_keeps_the_version_open() -> None:
    """An empty cell states nothing."""
    world = uploaded(world_of(TABLE), TABLE, table(FILES | {"c.tfrecord": ""}), *FILES)
    line = "line 4: c.tfrecord has no split: put it into a folder named after a split, such as train/ or split=train/"
    assert ([], True) == (closings(world), f"{line}, let the list state its split" in missing(world))


def test_files_of_splits_that_the_pipeline_does_not_ask_for_are_no_part() -> None:
    """The list decides, and the path if the list does not say."""
    world = uploaded(world_of(TABLE), TABLE, table(FILES | {"d.tfrecord": "test"}), *LABELS)
    asked = uploaded(world_of(TABLE), TABLE, table(FILES | {"test/d.tfrecord": "train"}), *FILES)
    line = "line 5: test/d.tfrecord: the pipeline has splits train, validation, not test; the list says train"
    assert ([FILES], [], True) == (closings(world), closings(asked), line in missing(asked))


def test_the_list_may_call_a_folder_by_its_other_name() -> None:
    """The Hub takes val/ for validation. Without a word of the list such a folder is no part of any split."""
    world = world_of(TABLE)
    files = {"a.tfrecord": "train", "val/c.tfrecord": "validation"}
    world.deliver(put(world, "a.tfrecord"))
    world.deliver(put(world, "val/c.tfrecord", shard_content(6)))
    world.deliver(put(world, TABLE, table({**files, "val/c.tfrecord": ""})))
    before = closings(world)
    world.deliver(put(world, TABLE, table(files)))
    assert ([], [files]) == (before, closings(world))


@pytest.mark.parametrize("train", [4, 6])
def test_a_total_that_does_not_hold_closes_nothing_until_it_does(train: int) -> None:
    """It is named with what to do; the sweep does not take the version for whole either."""
    world = uploaded(world_of(README), README, readme(train), *FILES)
    world.clock.move(hours=1)
    sweep(world.services)
    world.serve_requests()
    line = f"README.md, corrected: split train: expected {train} records (num_examples), got 5 in its files; upload"
    assert ([], [], True) == (closings(world), world.ledger.runs(), line in missing(world))
    world.deliver(put(world, README, readme()))
    assert ([FILES], "") == (closings(world), missing(world))


def test_a_split_whose_total_is_not_stated_closes_nothing() -> None:
    """Nothing would say when all its files are there."""
    content = readme().replace(b"  - {name: validation, num_bytes: 77, num_examples: 1}\n", b"")
    world = uploaded(world_of(README), README, content, *FILES)
    assert ([], True) == (closings(world), "no number of records of split validation; write its" in missing(world))


def test_a_file_that_is_missing_or_came_after_the_list_waits() -> None:
    """A total cannot say which file is missing, and a later file is not meant by an earlier list."""
    world = uploaded(world_of(README), README, readme(), "a.tfrecord", "c.tfrecord")
    first = missing(world)
    world.deliver(put(world, "b.tfrecord"))
    assert ([], True) == (closings(world), "expected 5 records (num_examples), got 3 in its files" in first)
    assert "README.md, written again: it is older than b.tfrecord and states no checksum" in missing(world)
    world.deliver(put(world, README, readme()))
    assert [FILES] == closings(world)


def test_all_events_lost_are_found_by_the_sweep() -> None:
    """Verdicts are kept where paths put them, and counted in the splits of the list."""
    world = world_of(README)
    for name in FILES:
        put(world, name)
    put(world, README, readme())
    for _ in range(2):
        world.clock.move(hours=1)
        sweep(world.services)
        world.serve_requests()
    assert [FILES] == closings(world)


def test_status_counts_each_file_in_the_split_of_the_list() -> None:
    """This starts once the list exists."""
    world = uploaded(world_of(TABLE), TABLE, table(FILES), *LABELS)
    splits = describe_version(VERSION, world.services).splits
    assert [("train", 2), ("validation", 1)] == [(split.split, split.accepted) for split in splits]
