"""The log of a Delta table: read as `deltalake` reads it, and refused in words where it is wrong."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from shard_validation import delta_checkpoint
from shard_validation.delta_log import MAX_COMMITS, MAX_LOG_BYTES, TableLog, read_log
from shard_validation.file_lists import FileListError
from tests.support.shards import clean_log

PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}


def name(version: int) -> str:
    """Path of a commit."""
    return f"_delta_log/{version:020d}.json"


def added(path: str = "a.parquet", size: object = 7, **more: Any) -> dict[str, Any]:
    """An action that adds a file."""
    return {"add": {"path": path, "size": size, "dataChange": True, "stats": '{"numRecords": 3}', **more}}


def removed(path: str = "a.parquet", **more: Any) -> dict[str, Any]:
    """An action that removes a file."""
    return {"remove": {"path": path, "dataChange": True, **more}}


def log_of(*commits: list[Any] | bytes) -> TableLog:
    """Read a log of these commits."""
    lines = [c if isinstance(c, bytes) else "\n".join(map(json.dumps, c)).encode() for c in commits]
    contents = {name(version): content for version, content in enumerate(lines)}
    log = read_log({path: len(content) for path, content in contents.items()}, contents.__getitem__)
    assert log is not None
    return log


def test_every_version_is_as_deltalake_reads_it(tmp_path: Path) -> None:
    """Names with escapes, sizes, numbers of records: appended to, overwritten, compacted, restored."""
    rows = pa.table({"split": ["train", "a b%:é"], "x": [1, 2]})
    for mode in ("append", "append", "overwrite"):
        write_deltalake(tmp_path, rows, mode=mode, partition_by=["split"])
    write_deltalake(tmp_path, rows, mode="append")
    DeltaTable(tmp_path).optimize.compact()
    DeltaTable(tmp_path).restore(1)
    log = log_in(tmp_path)
    for version in range(6):
        is_as_deltalake_reads_it(log, tmp_path, version)


def log_in(folder: Path) -> TableLog:
    """Read the log of the table in a folder."""
    files = {f"_delta_log/{path.name}": path for path in (folder / "_delta_log").glob("*")}
    log = read_log({n: p.stat().st_size for n, p in files.items()}, lambda n: files[n].read_bytes())
    assert log is not None
    return log


def is_as_deltalake_reads_it(log: TableLog, folder: Path, version: int) -> None:
    """Assert that a version has the same files."""
    state = log.at(version)
    actions = DeltaTable(folder, version=version).get_add_actions(flatten=True)
    assert state is not None
    stated = {(file.size_bytes, file.num_records) for file in state.files.values()}
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*.parquet")}
    assert set(zip(*(actions[c].to_pylist() for c in ("size_bytes", "num_records")), strict=True)) == stated
    assert (len(actions), True) == (len(state.files), set(state.files) <= there)


@pytest.fixture(scope="module")
def cleaned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of which the log begins with the checkpoint of version 2; two commits follow."""
    folder, rows = tmp_path_factory.mktemp("cleaned"), pa.table({"split": ["train", "a b%:é"], "x": [1, 2]})
    for mode in ("append", "overwrite", "append"):
        write_deltalake(folder, rows, mode=mode, partition_by=["split"])
    clean_log(folder)
    for _ in range(2):
        write_deltalake(folder, rows, mode="append")
    return folder


def test_a_log_that_was_cleaned_up_is_read_from_its_checkpoint_on(cleaned: Path) -> None:
    """`deltalake` does the same; `_last_checkpoint` is not needed."""
    log = log_in(cleaned)
    assert ([2, 3, 4], None) == ([commit.version for commit in log.commits], log.problem)
    for version in (2, 3, 4):
        is_as_deltalake_reads_it(log, cleaned, version)
    assert [2, 3, 3, 4] == [log.next_after(after, lambda *_: False).version for after in (None, 2, 2, 4)]


def test_what_was_cleaned_up_since_a_closing_may_have_changed_the_records(cleaned: Path) -> None:
    """Nothing tells whether it did."""
    log = log_in(cleaned)
    assert [True, True] == [log.next_after(after, lambda *_: False).changes_data for after in (0, 1)]


@pytest.mark.parametrize(
    ("commits", "checkpoints", "expected", "problem"),
    [
        ((0, 1, 2), (1,), [0, 1, 2], None),
        ((1, 2, 3), (1,), [1, 2, 3], None),
        ((2, 3), (1,), [1, 2, 3], None),
        ((), (1,), [1], None),
        ((0, 1, 4), (1, 3), [3, 4], None),
        ((0, 1, 3), (1,), [0, 1], "00000000000000000002.json is missing"),
        ((0, 1, 6), (4,), [4], "00000000000000000005.json is missing"),
    ],
)
def test_the_log_is_read_from_the_first_version_that_leads_to_the_newest(
    commits: tuple[int, ...], checkpoints: tuple[int, ...], expected: list[int], problem: str | None
) -> None:
    """A checkpoint stands for its own commit, and is not needed where that and all before it are there."""
    contents = {name(v): json.dumps(added(f"{v}")).encode() for v in commits}
    contents |= {checkpoint(v): parquet([PROTOCOL, added("old")]) for v in checkpoints}
    log = read_log({path: len(content) for path, content in contents.items()}, contents.__getitem__)
    assert log is not None
    assert expected == [commit.version for commit in log.commits]
    assert (log.problem is None, True) == (problem is None, (problem or "") in (log.problem or ""))


def checkpoint(version: int, part: str = "") -> str:
    """Path of a checkpoint."""
    return f"_delta_log/{version:020d}.checkpoint{part}.parquet"


def parquet(rows: list[dict[str, Any]], schema: pa.Schema | None = None) -> bytes:
    """These rows, one column for each kind of action."""
    schema = schema or pa.unify_schemas([pa.Table.from_pylist([row]).schema for row in rows])
    return file_of(pa.Table.from_pylist(rows, schema=schema))


def file_of(table: pa.Table) -> bytes:
    """A table as a Parquet file."""
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def test_a_checkpoint_may_have_several_parts(cleaned: Path) -> None:
    """One that is missing is named."""
    (path,) = (cleaned / "_delta_log").glob("*.checkpoint.parquet")
    rows, parts = pq.read_table(path), {}
    for number in range(3):
        part = rows.slice(number * 2, 2 if number < 2 else None)
        parts[checkpoint(2, f".{number + 1:010d}.0000000003")] = file_of(part)
    log = read_log({path: len(content) for path, content in parts.items()}, parts.__getitem__)
    assert log is not None
    assert log_in(cleaned).at(2).files == log.newest().files  # type: ignore[union-attr]
    gone, _ = parts.popitem()
    with pytest.raises(FileListError, match=f"{gone}, a part of the table's checkpoint, is missing; upload it"):
        read_log({path: len(content) for path, content in parts.items()}, parts.__getitem__)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: b"", "cannot be decoded"),
        (lambda: b"PAR1" + b"\xff" * 400 + b"\xff\xff\0\0PAR1", "cannot be decoded"),
        (lambda: parquet([PROTOCOL, added()])[:-40] + parquet([PROTOCOL])[-40:], "cannot be decoded"),
        (lambda: parquet([added()]), "it states no protocol"),
        (lambda: parquet([{"protocol": {"minReaderVersion": "x"}}]), "row 1: it is not an action"),
        (
            lambda: parquet([PROTOCOL, {"add": {"path": "../a", "size": 1}}]),
            "row 2: .*relative to the version's folder",
        ),
        (lambda: parquet([PROTOCOL, added(), added()]), "row 3: a.parquet is added twice"),
        (lambda: parquet([PROTOCOL, {"add": {"path": "a", "size": None, "x": 1}}]), "row 2: a: size is not stated"),
        (lambda: parquet([PROTOCOL, {"sidecar": {"path": "s.parquet"}}]), "row 2: a checkpoint with sidecars"),
        (lambda: parquet([PROTOCOL, {"metaData": {"configuration": ["mode=name"]}}]), "cannot be decoded"),
        (lambda: parquet([PROTOCOL, *[{"add": None}] * 3000, added("b")]), "more than 2,000 rows"),
    ],
)
def test_a_checkpoint_that_is_none_is_refused(
    make: Callable[[], bytes], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its content does not matter."""
    monkeypatch.setattr(delta_checkpoint, "MAX_ROWS", 2000)
    with pytest.raises(FileListError, match=f"{checkpoint(5)}: .*{problem}"):
        read_log({checkpoint(5): 1}, lambda _: make())


def test_what_a_checkpoint_says_of_readers_is_refused_by_name() -> None:
    """The rules are those of a commit; statistics may be columns."""
    mapped = {"metaData": {"configuration": [("delta.columnMapping.mode", "name")]}}
    vector = added(deletionVector={"storageType": "u"})
    parsed = {"add": {"path": "b", "size": 1, "stats_parsed": {"numRecords": 7}}}
    schema = pa.schema({
        "metaData": pa.struct({"configuration": pa.map_(pa.string(), pa.string())}),
        "protocol": pa.struct({"minReaderVersion": pa.int32(), "readerFeatures": pa.list_(pa.string())}),
        "add": pa.struct({
            "path": pa.string(),
            "size": pa.int64(),
            "stats": pa.string(),
            "stats_parsed": pa.struct({"numRecords": pa.int64()}),
            "deletionVector": pa.struct({"storageType": pa.string()}),
        }),
    })  # fmt: skip
    unknown = {"protocol": {"minReaderVersion": 3, "readerFeatures": ["v2Checkpoint"]}}
    content = parquet([mapped, vector, parsed, unknown], schema)
    log = read_log({checkpoint(5): 1}, lambda _: content)
    assert log is not None
    state = log.newest()
    assert {"a.parquet": 3, "b": 7} == {name: file.num_records for name, file in state.files.items()}
    for problem in ("column mapping (name)", "a.parquet has a deletion vector", "reader feature v2Checkpoint"):
        assert 1 == sum(problem in each for each in state.problems)


def test_a_version_that_changes_no_file_is_no_next_one() -> None:
    """The newest one is returned where nothing follows."""
    log = log_of([PROTOCOL, added()], [{"commitInfo": {}}], [added("b.parquet")], [{"txn": {"appId": "x"}}])
    assert [0, 2, 3] == [log.next_after(after, lambda *_: False).version for after in (None, 0, 2)]


def test_a_version_that_is_passed_over_is_followed_by_the_next() -> None:
    """The newest is never passed over."""
    log = log_of([PROTOCOL, added()], [added("b.parquet")], [added("c.parquet")])
    assert 1 == log.next_after(None, lambda state, _: state.version < 1).version
    assert 2 == log.next_after(None, lambda *_: True).version


def test_only_rearranged_files_leave_the_records_as_they_were() -> None:
    """Unless something else has changed since the version that is asked about."""
    still: dict[str, Any] = {"dataChange": False}
    log = log_of([added()], [added("b.parquet")], [removed(**still), added("c.parquet", **still)])
    assert [False, True] == [log.next_after(after, lambda s, _: s.version < 2).changes_data for after in (1, 0)]


def test_other_content_in_the_same_files_is_no_rearrangement() -> None:
    """With the same files as in the previous closing, one was overwritten, which no commit states."""
    log = log_of([added()], [removed(), added("b.parquet")], [{"commitInfo": {}}])
    assert [True, True] == [log.next_after(after, lambda *_: False).changes_data for after in (1, 2)]


def test_a_commit_that_is_missing_is_named() -> None:
    """Later ones are not read."""
    log = read_log({name(0): 1, name(2): 1}, lambda _: json.dumps(added()).encode())
    assert log is not None
    assert ("_delta_log/00000000000000000001.json is missing, but later commits exist", 1) == (
        log.problem,
        len(log.commits),
    )
    with pytest.raises(FileListError, match="the first commit of the table, is missing"):
        read_log({name(1): 1}, lambda _: b"")
    assert read_log({"_delta_log/_last_checkpoint": 1}, lambda _: b"") is None


@pytest.mark.parametrize(
    ("actions", "problem"),
    [
        ([{"protocol": {"minReaderVersion": 4}}], "readers of version 4"),
        ([{"protocol": {"minReaderVersion": 3, "readerFeatures": ["v9"]}}], "reader feature v9"),
        ([{"metaData": {"configuration": {"delta.columnMapping.mode": "name"}}}], "column mapping (name)"),
        ([added(deletionVector={"storageType": "u"})], "a.parquet has a deletion vector"),
    ],
)
def test_what_readers_would_have_to_do_is_refused_by_name(actions: list[Any], problem: str) -> None:
    """A later commit may remove the requirement."""
    taken_back = [
        removed(),
        {"protocol": {"minReaderVersion": 3, "readerFeatures": ["deletionVectors", "columnMapping"]}},
        {"metaData": {"configuration": {"delta.columnMapping.mode": "none"}}},
    ]
    log = log_of(actions, taken_back)
    first = log.at(0)
    assert first is not None
    assert (1, True, ()) == (len(first.problems), problem in first.problems[0], tuple(log.newest().problems))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"{", "line 1: it is not an action"),
        (b"[" * 100_000, "line 1: it is not an action"),
        (b'\n{"add": {"path": 7, "size": 1}}', "line 2: it is not an action"),
        (b'{"add": {"path": "a", "size": null}}', "size is not stated"),
        (b'{"add": {"path": "a", "size": true}}', "True is not a whole number"),
        (b'{"add": {"path": "a", "size": -1}}', "not a whole number"),
        (b'{"add": {"path": "../a", "size": 1}}', "relative to the version's folder"),
        (b'{"add": {"path": "abfss://c@x/a", "size": 1}}', "relative to the version's folder"),
        (b'{"add": {"path": "a%0A", "size": 1}}', "printable characters"),
        (b'{"add": {"path": "a", "size": 1, "stats": "{\\"numRecords\\": 1.5}"}}', "1.5 is not a whole number"),
        (b'{"protocol": {"minReaderVersion": "3"}}', "it is not an action"),
        (b'{"add": {"path": "a", "size": 1}}\n' * 2, "line 2: a is added twice"),
    ],
)
def test_a_log_that_is_none_is_refused_with_its_line(content: bytes, problem: str) -> None:
    """Its content does not matter."""
    with pytest.raises(FileListError, match=r"_delta_log/0{20}\.json: ") as refused:
        log_of(content)
    assert problem in str(refused.value)


def test_statistics_may_be_missing_or_broken() -> None:
    """They are optional."""
    log = log_of([added("a", stats=None), added("b", stats="{"), added("c", stats="[]"), added("d", stats=7)])
    assert {None} == {file.num_records for file in log.newest().files.values()}


@pytest.mark.parametrize("sizes", [[MAX_LOG_BYTES, 1], [0] * (MAX_COMMITS + 1)])
def test_a_log_that_is_too_large_is_refused_before_it_is_read(sizes: list[int]) -> None:
    """Storage states the sizes of its files."""
    with pytest.raises(FileListError, match="without a checkpoint"):
        read_log({name(number): size for number, size in enumerate(sizes)}, lambda _: pytest.fail("was read"))
