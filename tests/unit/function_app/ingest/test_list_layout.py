"""Versions whose files a list names: what it states must hold, whatever order events and writes come in."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import json
from dataclasses import replace
from typing import Any
from zlib import crc32

import pytest
from crc32c import crc32c

from function_app.config.layouts import Layout
from function_app.explain.description import describe_version
from function_app.explain.history import why
from function_app.sweep.sweep import run_sweep, sweep
from shared.manifest import Manifest
from tests.support.world import VERSION, World, pipeline, shard_content

FILES = ("train/a.tfrecord", "train/b.tfrecord", "validation/c.tfrecord")
SUMS = "SHA256SUMS"
TABLE = "files.csv"


def listed_world(manifest: str = SUMS, **more: Any) -> World:
    """A world whose pipeline's versions have a list."""
    world = World()
    layout = Layout(kind="manifest", manifest=manifest, **more)
    world.change_pipeline(data=pipeline().data.model_copy(update={"layout": layout}))
    return world


def content(name: str, label: int = 1) -> bytes:
    """A shard whose content follows from its name, and whose size from the label too."""
    return shard_content(*map(int, str(crc32(name.encode())) * label))


def records(name: str, label: int = 1) -> int:
    """How many records it has."""
    return len(str(crc32(name.encode()))) * label


def sums(*names: str, label: int = 1) -> bytes:
    """What sha256sum writes for these files."""
    return "".join(f"{hashlib.sha256(content(name, label)).hexdigest()}  {name}\n" for name in names).encode()


def table(*names: str, columns: str = "name,size,records,sha256,md5,crc32c", label: int = 1) -> bytes:
    """A CSV with these columns."""
    rows = [columns]
    for name in names:
        data = content(name, label)
        cells = {
            "name": name,
            "split": name.split("/")[0],
            "size": len(data),
            "records": records(name, label),
            "sha256": hashlib.sha256(data).hexdigest(),
            "md5": hashlib.md5(data).hexdigest(),  # noqa: S324 (as md5sum does)
            "crc32c": f"{crc32c(data):08x}",
        }
        rows.append(",".join(str(cells[column]) for column in columns.split(",")))
    return "\n".join(rows).encode()


def put(world: World, name: str, data: bytes | None = None) -> str:
    """Upload a file some seconds after the last one: storage states times in seconds."""
    world.clock.move(seconds=2)
    return world.put(name, content(name) if data is None else data)


def swept_later(world: World) -> None:
    """Let an hour pass, then fire the timer and handle what it sends."""
    world.clock.move(hours=1)
    sweep(world.services)
    world.serve_requests()


def closings(world: World) -> list[list[str]]:
    """The names in the manifest of each closing, the first closing first."""
    generations = reversed(world.ledger.generations(VERSION))
    manifests = [Manifest.from_json(world.documents.documents[one.manifest_path]) for one in generations]
    return [[shard.name for shard in manifest.shards] for manifest in manifests]


def missing(world: World) -> list[str]:
    """What status names as missing."""
    return [name for split in describe_version(VERSION, world.services).splits for name in split.missing]


def rejected(world: World) -> list[str]:
    """The messages of what status names as rejected."""
    return [
        row.reasons[0].message for split in describe_version(VERSION, world.services).splits for row in split.rejected
    ]


@pytest.mark.parametrize("order", list(itertools.permutations((*FILES, SUMS))))
def test_any_order_of_events_closes_once(order: tuple[str, ...]) -> None:
    """The list's event may come before, between and after those of the shards, and all of them twice."""
    world = listed_world()
    for name in FILES:
        put(world, name)
    put(world, SUMS, sums(*FILES))
    for name in (*order, *order):
        world.deliver(f"{VERSION}/{name}")
    assert [list(FILES)] == closings(world)


@pytest.mark.parametrize("order", list(itertools.permutations((*FILES, SUMS))))
def test_any_order_of_uploads_closes_once(order: tuple[str, ...]) -> None:
    """A list with checksums says what the version contains, so it may be written first."""
    world = listed_world()
    for name in order:
        world.deliver(put(world, name, sums(*FILES) if name == SUMS else None))
    assert ([list(FILES)], []) == (closings(world), missing(world))


@pytest.mark.parametrize("manifest", ["MD5SUMS", TABLE])
def test_other_lists_are_read(manifest: str) -> None:
    """Each says by its name how it is read."""
    world = listed_world(manifest)
    stated = table(*FILES, columns="name,split,size,records,sha256,md5,crc32c")
    if manifest == "MD5SUMS":
        lines = (f"{hashlib.md5(content(name)).hexdigest()} *./{name}\r\n" for name in FILES)  # noqa: S324 (as md5sum does)
        stated = "".join(lines).encode()
    for name in FILES:
        world.deliver(put(world, name))
    world.deliver(put(world, manifest, stated))
    assert [list(FILES)] == closings(world)


@pytest.mark.parametrize("list_first", [True, False])
@pytest.mark.parametrize("column", ["size", "records", "sha256", "md5", "crc32c"])
def test_a_shard_that_differs_is_rejected_whichever_came_first(column: str, *, list_first: bool) -> None:
    """The reason names the line, and people are notified; a list that agrees takes the rejection back."""
    world = listed_world(TABLE)
    wrong = table(*FILES, columns=f"name,{column}", label=2)
    names = (TABLE, *FILES) if list_first else (*FILES, TABLE)
    for name in names:
        world.deliver(put(world, name, wrong if name == TABLE else None))
    swept_later(world)
    verdicts = [[a for a in world.actions(f"{VERSION}/{name}") if a.startswith("shard_")] for name in FILES]
    assert [["shard_accepted", "shard_rejected"]] * 3 == verdicts
    assert ([], list(FILES)) == (closings(world), [name for name in missing(world) if name in FILES])
    assert "as files.csv states in line" in rejected(world)[0]
    assert world.ledger.notifications(str(VERSION))
    world.deliver(put(world, TABLE, table(*FILES, columns=f"name,{column}")))
    assert ([list(FILES)], []) == (closings(world), missing(world))


def test_a_correct_upload_after_a_rejection_closes() -> None:
    """The list stays as it is."""
    world = listed_world()
    world.deliver(put(world, SUMS, sums(*FILES)))
    for name in FILES:
        world.deliver(put(world, name, content(name, 7) if name == FILES[1] else None))
    assert ([], [FILES[1]]) == (closings(world), missing(world))
    world.deliver(put(world, FILES[1]))
    assert ([list(FILES)], []) == (closings(world), missing(world))


def test_a_listed_file_that_is_missing_is_named() -> None:
    """Both by status and by why."""
    world = listed_world()
    for name in (FILES[0], FILES[2]):
        world.deliver(put(world, name))
    world.deliver(put(world, SUMS, sums(*FILES)))
    assert ([], [FILES[1]]) == (closings(world), missing(world))
    assert any(FILES[1] in line for line in why(str(VERSION), world.services).awaited)


def test_without_its_list_a_version_stays_open_and_says_so() -> None:
    """Nothing else says which files there are; the sweep does not guess."""
    world = listed_world()
    for name in FILES:
        world.deliver(put(world, name))
    swept_later(world)
    assert ([], [f"{SUMS}, the list of the version's files"]) == (closings(world), missing(world))


def test_files_that_the_list_does_not_name_are_no_part() -> None:
    """They neither block nor enter, and status names them; also where they are broken, or come last."""
    world = listed_world()
    world.deliver(put(world, "train/before.tfrecord"))
    for name in FILES:
        world.deliver(put(world, name))
    world.deliver(put(world, SUMS, sums(*FILES)))
    world.deliver(put(world, "train/broken.tfrecord", b"broken"))
    unlisted = [name for split in describe_version(VERSION, world.services).splits for name in split.unlisted]
    swept_later(world)
    assert [list(FILES)] == closings(world)
    assert (["train/before.tfrecord", "train/broken.tfrecord"], []) == (unlisted, missing(world))


def test_a_file_beside_the_list_that_is_broken_later_does_not_hold_up_the_version() -> None:
    """It was accepted when the counters of the whole version were noted, and the last verdict closes nevertheless."""
    world, beside = listed_world(), "train/beside.tfrecord"
    world.deliver(put(world, beside))
    for name in FILES[:2]:
        world.deliver(put(world, name))
    world.deliver(put(world, SUMS, sums(*FILES)))
    world.deliver(put(world, beside, b"broken"))
    world.deliver(put(world, FILES[2]))
    assert [list(FILES)] == closings(world)


def test_texts_beside_the_data_may_be_listed() -> None:
    """Files of splits that the pipeline does not name may be listed, too."""
    world = listed_world()
    for name in FILES:
        world.deliver(put(world, name))
    world.deliver(put(world, SUMS, sums(*FILES, "README.md", "dataset_info.json", "test/d.tfrecord")))
    assert ([list(FILES)], []) == (closings(world), missing(world))


def test_a_listed_file_of_no_split_keeps_the_version_open() -> None:
    """It must not be left out in silence."""
    world = listed_world()
    for name in FILES:
        world.deliver(put(world, name))
    world.deliver(put(world, SUMS, sums(*FILES, "more.tfrecord")))
    assert ([], True) == (closings(world), "line 4: more.tfrecord has no split" in missing(world)[0])


def test_a_split_that_contradicts_the_path_keeps_the_version_open() -> None:
    """The list or the folder is wrong."""
    world = listed_world(TABLE)
    for name in FILES:
        world.deliver(put(world, name))
    world.deliver(
        put(world, TABLE, table(*FILES, columns="name,split").replace(b"b.tfrecord,train", b"b.tfrecord,test"))
    )
    assert ([], True) == (
        closings(world),
        "line 3: train/b.tfrecord is in split train by its path" in missing(world)[0],
    )


def test_a_list_that_cannot_be_read_says_where() -> None:
    """A corrected one closes."""
    world = listed_world()
    for name in FILES:
        world.deliver(put(world, name))
    world.deliver(put(world, SUMS, sums(*FILES) + b"zz  ../etc/passwd\n"))
    assert ([], True) == (closings(world), f"{SUMS}, corrected: {SUMS}: line 4: expected" in missing(world)[0])
    world.deliver(put(world, SUMS, sums(*FILES)))
    assert [list(FILES)] == closings(world)


def test_a_file_after_a_list_without_checksums_waits_for_the_next_list() -> None:
    """As with a marker, the writer may not have finished."""
    world = listed_world(TABLE)
    stated = table(*FILES, columns="name,split")
    for name in FILES:
        world.deliver(put(world, name))
    world.deliver(put(world, TABLE, stated))
    world.deliver(put(world, FILES[0], content(FILES[0], 5)))
    swept_later(world)
    line = f"{TABLE}, written again: it is older than {FILES[0]} and states no checksum"
    assert ([list(FILES)], [line]) == (closings(world), missing(world))
    world.deliver(put(world, TABLE, stated))
    assert [list(FILES)] * 2 == closings(world)


def test_a_new_list_opens_the_next_generation() -> None:
    """A list with fewer files closes at once, one with more files once they exist."""
    world = listed_world()
    for name in FILES:
        world.deliver(put(world, name))
    world.deliver(put(world, SUMS, sums(*FILES)))
    fewer = [FILES[0], FILES[2]]
    world.deliver(put(world, SUMS, sums(*fewer)))
    more = [*FILES[:2], "train/late.tfrecord", FILES[2]]
    world.deliver(put(world, SUMS, sums(*more)))
    before = closings(world)
    world.deliver(put(world, more[2]))
    assert ([list(FILES), fewer], [list(FILES), fewer, more]) == (before, closings(world))


def test_the_same_list_again_changes_nothing() -> None:
    """The fingerprint is of the content; one run is asked for."""
    world = listed_world()
    for name in FILES:
        world.deliver(put(world, name))
    for _ in range(3):
        world.deliver(put(world, SUMS, sums(*FILES)))
    world.serve_requests()
    assert (1, 1) == (len(closings(world)), len(world.ledger.runs()))


def test_content_that_changes_under_its_list_closes_nothing() -> None:
    """The closed version stays as it was; the sweep does not take the mixture for whole."""
    world = listed_world()
    for name in FILES:
        world.deliver(put(world, name))
    world.deliver(put(world, SUMS, sums(*FILES)))
    world.deliver(put(world, FILES[0], content(FILES[0], 5)))
    swept_later(world)
    assert ([list(FILES)], [FILES[0]]) == (closings(world), missing(world))


def test_all_events_lost_are_found_by_the_sweep() -> None:
    """The list's as well."""
    world = listed_world()
    for name in FILES:
        put(world, name)
    put(world, SUMS, sums(*FILES))
    swept_later(world)
    assert [list(FILES)] == closings(world)


def test_verdicts_of_another_layout_are_taken_again_where_they_lack_the_checksum() -> None:
    """They were right, but say nothing of the SHA-256."""
    world = listed_world()
    asked = world.services.pipelines["digits"].data
    world.change_pipeline(data=asked.model_copy(update={"layout": Layout(kind="marker")}))
    for name in FILES:
        world.deliver(put(world, name))
    world.change_pipeline(data=asked)
    world.deliver(put(world, SUMS, sums(*FILES)))
    before = closings(world)
    swept_later(world)
    swept_later(world)
    assert ([], [list(FILES)]) == (before, closings(world))


def test_a_rejection_by_a_list_ends_with_its_layout() -> None:
    """With a marker, the file has no error."""
    world = listed_world()
    world.deliver(put(world, SUMS, sums(*FILES, label=2)))
    for name in FILES:
        world.deliver(put(world, name))
    asked = world.services.pipelines["digits"].data
    world.change_pipeline(data=asked.model_copy(update={"layout": Layout(kind="marker")}))
    world.deliver(put(world, "_SUCCESS", b""))
    swept_later(world)
    swept_later(world)
    assert [list(FILES)] == closings(world)


def test_a_listed_file_without_records_is_left_out_only_if_none_are_stated() -> None:
    """Spark writes one where a partition has no records."""
    world, empty = listed_world(TABLE), gzip.compress(b"")
    name = "train/empty.tfrecord.gz"
    for each in FILES:
        world.deliver(put(world, each))
    world.deliver(put(world, name, empty))
    stated = table(*FILES, columns="name,records")
    world.deliver(put(world, TABLE, stated + f"\n{name},5".encode()))
    before = (closings(world), missing(world))
    world.deliver(put(world, TABLE, stated + f"\n{name},0".encode()))
    assert (([], [name]), [list(FILES)]) == (before, closings(world))


def test_an_unchanged_version_is_passed_over_by_the_sweep() -> None:
    """It is closed, and costs two reads."""
    world = listed_world()
    for name in FILES:
        world.deliver(put(world, name))
    world.deliver(put(world, SUMS, sums(*FILES)))
    world.serve_requests()
    world.clock.move(hours=1)
    assert [0, 1] == [run_sweep(world.services).versions_unchanged for _ in range(2)]


def test_a_verdict_that_is_not_the_last_reads_no_listing_and_the_list_once() -> None:
    """Each of 100,000 files asks whether it was the last one."""
    world = listed_world()
    world.deliver(put(world, SUMS, sums(*FILES)))
    for name in FILES:
        put(world, name)
    calls: list[str] = []
    listed, opened = world.shards.list, world.shards.open
    world.shards.list = lambda prefix, **more: calls.append("list") or listed(prefix, **more)  # type: ignore[method-assign,func-returns-value]
    world.shards.open = lambda facts: calls.append(facts.path) or opened(facts)  # type: ignore[method-assign,func-returns-value]
    world.deliver(f"{VERSION}/{FILES[0]}")
    world.deliver(f"{VERSION}/{FILES[1]}")
    assert [f"{VERSION}/{name}" for name in FILES[:2]] == calls
    world.deliver(f"{VERSION}/{FILES[2]}")
    assert [list(FILES)] == closings(world)


def test_a_data_set_of_tensorflow_datasets_closes_with_its_own_list() -> None:
    """Shards with the counts that dataset_info.json states, which is no shard and no list of counts then."""
    world = listed_world("dataset_info.json")
    names = [
        f"digits-{split}.tfrecord-{n:05d}-of-00002" for split in ("train", "validation", "test") for n in range(2)
    ]
    counts = [len(str(crc32(name.encode()))) for name in names]
    splits = [
        {"name": split, "shardLengths": [str(count) for count in counts[2 * n : 2 * n + 2]]}
        for n, split in enumerate(("train", "validation", "test"))
    ]
    for name in names:
        world.deliver(put(world, name))
    splits[0]["shardLengths"][1] = "3"  # type: ignore[index]
    info = {"name": "digits", "splits": splits}
    world.deliver(put(world, "dataset_info.json", json.dumps(info).encode()))
    assert (
        [],
        "expected 3 records, as dataset_info.json states in shard 1 of split train" in rejected(world)[0],
    ) == (
        closings(world),
        True,
    )
    splits[0]["shardLengths"][1] = str(counts[1])  # type: ignore[index]
    world.deliver(put(world, "dataset_info.json", json.dumps(info).encode()))
    assert ([names[:4]], []) == (closings(world), missing(world))


@pytest.mark.parametrize(("off_by", "num_closings"), [(0, 1), (1, 0), ("files", 1)])
def test_the_bytes_that_tensorflow_datasets_states_must_hold(off_by: int | str, num_closings: int) -> None:
    """Those of the records or of the files; another number keeps the version open, and says so."""
    world = listed_world("dataset_info.json")
    splits = []
    for split in ("train", "validation"):
        name = f"digits-{split}.tfrecord-00000-of-00001"
        world.deliver(put(world, name))
        count, size = len(str(crc32(name.encode()))), len(content(name))
        stated = size if off_by == "files" else size - 16 * count + int(off_by)
        splits.append({"name": split, "shardLengths": [str(count)], "numBytes": str(stated)})
    world.deliver(put(world, "dataset_info.json", json.dumps({"name": "digits", "splits": splits}).encode()))
    is_named = any("bytes of records (numBytes), got" in line for line in missing(world))
    assert (num_closings, not num_closings) == (len(closings(world)), is_named), missing(world)


def test_a_script_of_ones_own_starts_beside_files_that_are_not_listed() -> None:
    """They may lie there at any time, so it has to keep to the manifest."""
    world = listed_world()
    world.change_pipeline(
        data=world.services.pipelines["digits"].data,
        train=pipeline().train.model_copy(update={"script": "scripts/mine.py"}),
    )
    world.services = replace(world.services, read_script=lambda _: b"import horovod.tensorflow as hvd")
    for name in (*FILES, "train/unlisted.tfrecord"):
        world.deliver(put(world, name))
    world.deliver(put(world, SUMS, sums(*FILES)))
    world.serve_requests()
    assert "submitted" == world.only_run().state


def test_a_run_on_listed_data_goes_to_its_model() -> None:
    """Submission and end compare the files with their verdicts by name."""
    world = listed_world()
    for name in FILES:
        world.deliver(put(world, name))
    world.deliver(put(world, SUMS, sums(*FILES)))
    world.serve_requests()
    assert "registered" == world.finish(world.only_run()).state
