"""Layouts without -of-N: a version is whole when a marker says so, whatever order events and writes come in."""

from __future__ import annotations

import gzip
import itertools
from dataclasses import replace
from typing import Any
from zlib import crc32

import pytest

from cli.remote.status import describe_version as status_lines
from function_app.config.layouts import Layout
from function_app.domain.records import DatasetVersion
from function_app.explain.description import describe_version
from function_app.explain.history import why
from function_app.ingest import listed_layouts
from function_app.sweep.sweep import run_sweep, sweep
from shared.manifest import Manifest
from tests.support.world import VERSION, World, pipeline, shard_content
from tests.unit.function_app.web.client import call, look

TRAIN = ("split=train/part-00000-aa.c000.tfrecord", "split=train/part-00001-bb.c000.tfrecord")
VALIDATION = ("split=validation/part-00000-cc.c000.tfrecord",)
FILES = (*TRAIN, *VALIDATION)
MARKER = "_SUCCESS"
MARKED = Layout(kind="marker")


def marked_world(layout: Layout = MARKED, **changes: Any) -> World:
    """A world whose pipeline has a layout with a marker."""
    world = World()
    world.change_pipeline(data=pipeline().data.model_copy(update={"layout": layout}), **changes)
    return world


def put(world: World, name: str, label: int = 1, version: str = "v1") -> str:
    """Upload a file some seconds after the last one: storage states times in seconds."""
    world.clock.move(seconds=2)
    content = (
        b"" if name.endswith((MARKER, "DONE")) else shard_content(*map(int, str(crc32(f"{name} {label}".encode()))))
    )
    return world.put(name, content, version)


def closings(world: World) -> list[list[str]]:
    """The names in the manifest of each closing, the first closing first."""
    generations = reversed(world.ledger.generations(VERSION))
    manifests = [Manifest.from_json(world.documents.documents[one.manifest_path]) for one in generations]
    return [[shard.name for shard in manifest.shards] for manifest in manifests]


def missing(world: World) -> list[str]:
    """What status names as missing."""
    return [name for split in describe_version(VERSION, world.services).splits for name in split.missing]


@pytest.mark.parametrize("order", list(itertools.permutations((*FILES, MARKER))))
def test_any_order_of_events_closes_once(order: tuple[str, ...]) -> None:
    """The marker's event may come before, between and after those of the shards, and all of them twice."""
    world = marked_world()
    for name in (*FILES, MARKER):
        put(world, name)
    for name in (*order, *order):
        world.deliver(f"{VERSION}/{name}")
    assert [list(FILES)] == closings(world)


def test_indices_are_those_of_the_sorted_names() -> None:
    """Splits may have any sizes."""
    world = marked_world()
    for name in (*FILES, MARKER):
        world.deliver(put(world, name))
    (generation,) = world.ledger.generations(VERSION)
    manifest = Manifest.from_json(world.documents.documents[generation.manifest_path])
    assert [(TRAIN[0], 0, 2), (TRAIN[1], 1, 2), (VALIDATION[0], 0, 1)] == [
        (shard.name, shard.index, shard.num_shards) for shard in manifest.shards
    ]


def test_a_version_without_its_marker_stays_open_and_says_so() -> None:
    """Nothing else says that all files have come; the sweep does not guess."""
    world = marked_world()
    for name in FILES:
        world.deliver(put(world, name))
    world.clock.move(hours=1)
    sweep(world.services)
    assert ([], 2) == (closings(world), len(missing(world)))
    assert all("_SUCCESS, which says that all files have come" == line for line in missing(world))


def test_a_file_that_is_not_judged_yet_is_named() -> None:
    """The marker counts only once every file that storage lists is accepted."""
    world = marked_world()
    for name in (*FILES, MARKER):
        put(world, name)
    for name in (TRAIN[0], *VALIDATION, MARKER):
        world.deliver(f"{VERSION}/{name}")
    assert ([], [TRAIN[1]]) == (closings(world), missing(world))
    world.deliver(f"{VERSION}/{TRAIN[1]}")
    assert ([list(FILES)], []) == (closings(world), missing(world))


def test_all_events_lost_are_found_by_the_sweep() -> None:
    """The marker's as well; what the first sweep sends is enough."""
    world = marked_world()
    for name in (*FILES, MARKER):
        put(world, name)
    world.clock.move(hours=1)
    sweep(world.services)
    world.serve_requests()
    assert [list(FILES)] == closings(world)


def test_a_file_after_the_marker_opens_the_next_generation() -> None:
    """It closes with the next marker, not with the file: the writer may be in the midst of its work."""
    world = marked_world()
    for name in (*FILES, MARKER):
        world.deliver(put(world, name))
    late = "split=train/part-00002-dd.c000.tfrecord"
    world.deliver(put(world, late))
    world.clock.move(hours=1)
    sweep(world.services)
    assert ([list(FILES)], [f"_SUCCESS, written again: it is older than {late}"]) == (closings(world), missing(world))
    world.deliver(put(world, MARKER))
    assert [list(FILES), [*TRAIN, late, *VALIDATION]] == closings(world)


def test_a_late_file_before_the_closing_waits_for_the_next_marker_too() -> None:
    """The content of a closing does not depend on when verdicts come."""
    world = marked_world()
    for name in (*FILES, MARKER):
        put(world, name)
    late = put(world, "split=train/part-00002-dd.c000.tfrecord")
    for name in (MARKER, *FILES):
        world.deliver(f"{VERSION}/{name}")
    world.deliver(late)
    assert [] == closings(world)
    world.deliver(put(world, MARKER))
    assert 4 == len(closings(world)[0])


def test_a_shard_that_is_replaced_between_marker_and_closing_is_not_closed_with() -> None:
    """The closing uses neither the old verdict, nor the new one before another marker."""
    world = marked_world()
    for name in (*FILES, MARKER):
        put(world, name)
    for name in FILES:
        world.deliver(f"{VERSION}/{name}")
    again = put(world, TRAIN[0], label=5)
    world.deliver(f"{VERSION}/{MARKER}")
    world.deliver(again)
    assert [] == closings(world)
    world.deliver(put(world, MARKER))
    assert [list(FILES)] == closings(world)


def test_a_marker_that_is_written_again_over_the_same_files_changes_nothing() -> None:
    """The fingerprint is of the content."""
    world = marked_world()
    for name in (*FILES, MARKER, MARKER):
        world.deliver(put(world, name))
    world.serve_requests()
    assert (1, 1) == (len(closings(world)), len(world.ledger.runs()))


def test_a_marker_in_the_folder_of_each_split_is_as_good() -> None:
    """Two programs write the splits one after the other."""
    world = marked_world()
    for name in ("train/a.tfrecord", f"train/{MARKER}", "validation/b.tfrecord"):
        world.deliver(put(world, name))
    assert ([], ["_SUCCESS, written again: it is older than validation/b.tfrecord"]) == (
        closings(world),
        missing(world),
    )
    world.deliver(put(world, f"validation/{MARKER}"))
    assert [["train/a.tfrecord", "validation/b.tfrecord"]] == closings(world)


def test_spark_overwrites_a_version() -> None:
    """Everything is deleted, then other files and another marker are written: one more generation, no other."""
    world = marked_world()
    for name in (*FILES, MARKER):
        world.deliver(put(world, name))
    for name in (TRAIN[0], MARKER, TRAIN[1], *VALIDATION):
        world.remove(f"{VERSION}/{name}")
        world.clock.move(hours=1)
        sweep(world.services)
    others = [name.replace("part", "new") for name in FILES]
    for name in (*others, MARKER):
        world.deliver(put(world, name))
    assert [list(FILES), others] == closings(world)


def test_files_that_are_deleted_under_a_marker_close_nothing() -> None:
    """A program that replaces partitions deletes first; a sweep in between must not take what is left for whole."""
    world = marked_world()
    for name in (*FILES, MARKER):
        world.deliver(put(world, name))
    world.remove(f"{VERSION}/{TRAIN[1]}")
    world.clock.move(hours=1)
    sweep(world.services)
    assert (1, ["_SUCCESS, written again: files have come or gone since it was first seen"]) == (
        len(closings(world)),
        missing(world),
    )
    world.deliver(put(world, MARKER))
    assert [list(FILES), [TRAIN[0], *VALIDATION]] == closings(world)


def test_a_rejected_file_keeps_the_version_open() -> None:
    """Its correction is newer than the marker, which is then written again."""
    world = marked_world()
    for name in FILES:
        world.deliver(put(world, name))
    world.deliver(world.put(TRAIN[0], b"broken"))
    world.deliver(put(world, MARKER))
    assert ([], [TRAIN[0]]) == (closings(world), missing(world))
    world.deliver(put(world, TRAIN[0]))
    world.deliver(put(world, MARKER))
    assert [list(FILES)] == closings(world)


def test_what_a_writer_leaves_behind_is_ignored_with_a_reason() -> None:
    """It neither closes nor blocks; files of attempts that were not committed are only counted."""
    world = marked_world()
    for name in ("_started_1", "split=train/_committed_1", "_metadata", f"_temporary/0/{TRAIN[0]}", *FILES, MARKER):
        world.deliver(put(world, name))
    assert [list(FILES)] == closings(world)
    assert (["event_suppressed"], []) == (
        world.actions(f"{VERSION}/_started_1"),
        world.actions(f"{VERSION}/_temporary/0/{TRAIN[0]}"),
    )
    assert "are hidden or written by" in why(f"{VERSION}/_metadata", world.services).lines[0].reason


def test_an_empty_file_of_a_split_with_others_is_left_out() -> None:
    """Spark writes one where its first partition has no records."""
    world = marked_world()
    for name in FILES:
        world.deliver(put(world, name))
    world.deliver(world.put("split=train/part-00009.tfrecord.gz", gzip.compress(b"")))
    world.deliver(put(world, MARKER))
    assert ([list(FILES)], []) == (closings(world), missing(world))


def test_a_marker_of_another_name_is_no_shard() -> None:
    """This holds even if the layout accepts any file in that folder."""
    world = marked_world(Layout(kind="marker", marker="DONE"))
    for name in (*FILES, "split=train/DONE", "split=validation/DONE"):
        world.deliver(put(world, name))
    swept_later(world, 60)
    assert ([list(FILES)], []) == (closings(world), missing(world))


def test_an_unchanged_version_is_passed_over_by_the_sweep() -> None:
    """It is closed, and costs two reads."""
    world = marked_world()
    for name in (*FILES, MARKER):
        world.deliver(put(world, name))
    world.serve_requests()
    world.clock.move(hours=1)
    assert [0, 1] == [run_sweep(world.services).versions_unchanged for _ in range(2)]


def test_why_says_what_the_next_generation_waits_for() -> None:
    """A closed version is open for files that came later."""
    world = marked_world()
    for name in (*FILES, MARKER, TRAIN[0]):
        world.deliver(put(world, name))
    world.serve_requests()
    awaited = why(str(VERSION), world.services).awaited
    assert f"for its next generation: _SUCCESS, written again: it is older than {TRAIN[0]}" in awaited


def test_too_many_files_are_never_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The manifest stays readable; status says why."""
    monkeypatch.setattr(listed_layouts, "MAX_FILES", 2)
    world = marked_world()
    for name in (*FILES, MARKER):
        world.deliver(put(world, name))
    assert ([], True) == (closings(world), "larger files: the version has more than 2" in missing(world))


def test_a_verdict_that_is_not_the_last_reads_no_listing() -> None:
    """Each of 100,000 files asks whether it was the last one."""
    world = marked_world()
    listed: list[str] = []
    inside = world.shards.list
    world.shards.list = lambda prefix, **more: listed.append(prefix) or inside(prefix, **more)  # type: ignore[method-assign,func-returns-value]
    world.deliver(put(world, TRAIN[0]))
    before = list(listed)
    for name in (TRAIN[1], *VALIDATION, MARKER):
        put(world, name)
    world.deliver(f"{VERSION}/{MARKER}")
    listed.clear()
    world.deliver(f"{VERSION}/{TRAIN[1]}")
    assert ([], []) == (before, listed)
    world.deliver(f"{VERSION}/{VALIDATION[0]}")
    assert [list(FILES)] == closings(world)


@pytest.mark.parametrize(
    ("uploaded", "state"), [("split=train/part-00002-dd.c000.tfrecord", "submitted"), (TRAIN[0], "planned")]
)
def test_a_closing_whose_request_was_lost_is_followed_up_while_its_version_is_open_again(
    uploaded: str, state: str
) -> None:
    """Without a marker for the new file nothing closes. Where that file replaces another one, the run waits."""
    world = marked_world()
    for name in (*FILES, MARKER):
        world.deliver(put(world, name))
    world.requests.messages.clear()
    world.deliver(put(world, uploaded, label=2))
    world.clock.move(minutes=10)
    sweep(world.services)
    world.serve_requests()
    assert (1, state) == (len(closings(world)), world.only_run().state)


def test_a_pipeline_may_change_its_layout() -> None:
    """The files of an open version are judged again under their new positions; closed ones stay as they are."""
    names = ("train-00000-of-00001.tfrecord", "validation-00000-of-00002.tfrecord")
    world = World()
    world.upload_shards(*names)
    layout = Layout(kind="marker", patterns={"train": "train-*", "validation": "validation-*"})
    world.change_pipeline(data=pipeline().data.model_copy(update={"layout": layout}))
    put(world, MARKER)
    for _ in range(3):
        world.clock.move(hours=1)
        sweep(world.services)
        world.serve_requests()
    assert [list(names)] == closings(world)


def test_a_run_on_marked_data_goes_to_its_model() -> None:
    """Submission and end compare the files with their verdicts by name."""
    world = marked_world()
    for name in (*FILES, MARKER):
        world.deliver(put(world, name))
    world.serve_requests()
    assert "registered" == world.finish(world.only_run()).state


def test_versions_do_not_share_markers() -> None:
    """Each has its own note and its own listing."""
    world = marked_world()
    for version in ("v1", "v2"):
        for name in FILES:
            world.deliver(put(world, name, version=version))
    world.deliver(put(world, MARKER, version="v2"))
    assert ([], 1) == (closings(world), len(world.ledger.generations(replace(VERSION, version="v2"))))
    assert DatasetVersion(dataset="digits", version="v1") == VERSION


def quiet_world() -> World:
    """A world whose versions are taken for whole after an hour without a change."""
    return marked_world(Layout(kind="quiet", quiet_s=3600))


def swept_later(world: World, minutes: int) -> None:
    """Let time pass, then fire the timer and handle what it sends."""
    world.clock.move(minutes=minutes)
    sweep(world.services)
    world.serve_requests()


def test_a_version_without_a_change_is_taken_for_whole_by_the_sweep_alone() -> None:
    """Status says until when nothing may change, and afterwards that it was a guess; so do history and lineage."""
    world = quiet_world()
    for name in FILES:
        world.deliver(put(world, name))
    before = missing(world)
    swept_later(world, 5)
    line = "1 h without a change, until 2026-11-20 13:05:06 UTC, from which it is guessed that all files have come"
    assert (["1 h without a change, from which it is guessed that all files have come"], [line]) == (
        before,
        missing(world),
    )
    swept_later(world, 59)
    assert [] == closings(world)
    swept_later(world, 2)
    (generation,) = world.ledger.generations(VERSION)
    assert ([list(FILES)], [], "no file had changed for 1 h") == (closings(world), missing(world), generation.guess)
    body = call(world, "GET", f"/api/datasets/{VERSION}").json()
    assert "; this is a guess: no file had changed for 1 h" in next(status_lines(body))
    assert "<dd>a guess: no file had changed for 1 h</dd>" in look(world, f"/datasets/{VERSION}").text
    closed = next(line for line in why(str(VERSION), world.services).lines if line.action == "version_closed")
    world.finish(world.only_run())
    (model,) = world.models.registered.values()
    assert ("a guess: no file had changed for 1 h" in closed.reason, "no file had changed for 1 h") == (
        True,
        model.tags["landfall.complete_by_guess"],
    )


@pytest.mark.parametrize("change", ["write", "overwrite", "delete"])
def test_every_change_begins_the_wait_again(change: str) -> None:
    """A deletion leaves no time in storage; the listing differs from the one before."""
    world = quiet_world()
    spare = "split=train/part-00009-ee.c000.tfrecord"
    for name in (*FILES, *([] if change == "write" else [spare])):
        world.deliver(put(world, name))
    swept_later(world, 5)
    swept_later(world, 50)
    if change == "delete":
        world.remove(f"{VERSION}/{spare}")
    else:
        world.deliver(put(world, spare, label=3))
    swept_later(world, 50)
    swept_later(world, 50)
    before = closings(world)
    swept_later(world, 15)
    expected = list(FILES) if change == "delete" else sorted([*FILES, spare])
    assert ([], [expected]) == (before, closings(world))


def test_a_change_after_a_quiet_closing_is_the_next_generation() -> None:
    """It has the files of that time; a sweep of an unchanged version changes nothing."""
    world = quiet_world()
    for name in FILES:
        world.deliver(put(world, name))
    for _ in range(4):
        swept_later(world, 61)
    before = closings(world)
    world.deliver(put(world, TRAIN[0], label=8))
    for _ in range(4):
        swept_later(world, 61)
    assert ([list(FILES)], [list(FILES)] * 2) == (before, closings(world))


def test_a_rejected_file_keeps_a_quiet_version_open() -> None:
    """Waiting does not help."""
    world = quiet_world()
    for name in FILES:
        world.deliver(put(world, name))
    world.deliver(world.put(TRAIN[0], b"broken"))
    for _ in range(3):
        swept_later(world, 61)
    assert ([], [TRAIN[0]]) == (closings(world), missing(world))
