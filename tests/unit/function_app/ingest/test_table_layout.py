"""Versions that are Delta tables: each commit is exactly one closing, whatever order events come in."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from cli.remote.status import describe_version as status_lines
from function_app.config.layouts import Layout
from function_app.config.pipelines import Feature
from function_app.explain.description import describe_version
from function_app.sweep.sweep import sweep
from shared.manifest import Manifest
from tests.support.shards import clean_log
from tests.support.world import VERSION, World, pipeline
from tests.unit.function_app.web.client import call, look


def rows(first: int, num: int = 3, split: str = "train") -> pa.Table:
    """Rows of one split."""
    return pa.table({"split": [split] * num, "label": pa.array([(first + n) % 10 for n in range(num)], pa.int64())})


class Table:
    """A table that `deltalake` writes, and a world to which its files are copied."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.folder, self.world = folder, World()
        data = pipeline().data.model_copy(
            update={
                "layout": Layout(kind="delta"),
                "format": "parquet",
                "features": {"label": Feature(kind="int64", minimum=0, maximum=9)},
            }
        )
        self.world.change_pipeline(data=data, **changes)
        self.copied: set[str] = set()

    def write(self, *tables: pa.Table, mode: Any = "append") -> None:
        """Commit rows."""
        write_deltalake(self.folder, pa.concat_tables(tables), mode=mode, partition_by=["split"])

    def compact(self) -> None:
        """Rearrange the rows in fewer files."""
        DeltaTable(self.folder).optimize.compact()

    def new_files(self) -> list[str]:
        """The files that were not copied yet, the log last."""
        every = (path for path in self.folder.rglob("*") if path.is_file())
        names = sorted(path.relative_to(self.folder).as_posix() for path in every)
        return sorted(set(names) - self.copied, key=lambda name: (name.startswith("_"), name))

    def copy(self, *names: str) -> list[str]:
        """Copy files, by default all new ones; return their paths. No event is delivered."""
        found = list(names or self.new_files())
        self.copied.update(found)
        return [self.put(name, (self.folder / name).read_bytes()) for name in found]

    def put(self, name: str, content: bytes) -> str:
        """Upload a file some seconds after the last one."""
        self.world.clock.move(seconds=2)
        return self.world.put(name, content)

    def deliver(self, *paths: str) -> None:
        """Deliver events."""
        for path in paths:
            self.world.deliver(path)

    def commit(self, *tables: pa.Table, mode: Any = "append") -> None:
        """Commit rows, copy what is new, and deliver the events."""
        self.write(*tables, mode=mode)
        self.deliver(*self.copy())

    def closings(self) -> list[tuple[int | None, set[str]]]:
        """Version of the table and names of each closing, the first one first."""
        found = []
        for one in reversed(self.world.ledger.generations(VERSION)):
            manifest = Manifest.from_json(self.world.documents.documents[one.manifest_path])
            found.append((one.table_version, {shard.name for shard in manifest.shards}))
        return found

    def stated(self, *versions: int) -> list[tuple[int | None, set[str]]]:
        """The same as `deltalake` reads it from the table."""
        return [(v, set(DeltaTable(self.folder, version=v).file_uris())) for v in versions]

    def missing(self) -> list[str]:
        """What status names as missing."""
        return [name for split in describe_version(VERSION, self.world.services).splits for name in split.missing]

    def sweep_later(self) -> None:
        """Let an hour pass, then fire the timer and handle what it sends."""
        self.world.clock.move(hours=1)
        sweep(self.world.services)
        self.world.serve_requests()


def names(found: list[tuple[int | None, set[str]]]) -> list[tuple[int | None, set[str]]]:
    """Return names without the table's folder."""
    return [(v, {"/".join(name.split("/")[-2:]) for name in every}) for v, every in found]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table that nothing was written to."""
    return Table(tmp_path)


@pytest.fixture(scope="module")
def two_commits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a table that was appended to."""
    table = Table(tmp_path_factory.mktemp("table"))
    table.write(rows(0), rows(1, split="validation"))
    table.write(rows(2))
    return table.folder


def runs(table: Table) -> list[int]:
    """The generations that runs were started for, the first one first."""
    table.world.serve_requests()
    return [run.generation for run in reversed(table.world.ledger.runs())]


def test_each_commit_is_exactly_one_closing(table: Table) -> None:
    """Appended to, overwritten, compacted."""
    table.commit(rows(0), rows(1, split="validation"))
    table.commit(rows(2))
    table.commit(rows(3), rows(4, split="validation"), mode="overwrite")
    table.commit(rows(5))
    table.compact()
    table.deliver(*table.copy())
    assert (names(table.stated(0, 1, 2, 3, 4)), []) == (table.closings(), table.missing())
    table.sweep_later()
    assert 5 == len(table.closings())
    reasons = [entry.reason for entry in table.world.ledger.history(str(VERSION))]
    assert any("generation 5, version 4 of the table" in reason for reason in reasons)


def test_people_see_which_version_of_the_table_was_closed(table: Table) -> None:
    """The API, `landfall status` and the page show it; table versions start at 0, closings at 1."""
    table.commit(rows(0), rows(1, split="validation"))
    table.commit(rows(2))
    body = call(table.world, "GET", f"/api/datasets/{VERSION}").json()
    assert (1, [0]) == (body["generation"]["table_version"], [one["table_version"] for one in body["superseded"]])
    assert "  version 1 of the Delta table, as generation 2" in list(status_lines(body))
    assert "<dt>Delta table</dt><dd>version 1</dd>" in look(table.world, f"/datasets/{VERSION}").text


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_any_order_of_events_closes_each_commit_once(two_commits: Path, order: tuple[int, ...]) -> None:
    """Each event comes twice, and the sweep follows; only the newest of commits that close together is trained on."""
    table = Table(two_commits)
    paths = table.copy()
    parts = [paths[:2], paths[2:3], paths[3:4], paths[4:]]
    for number in (*order, *order):
        table.deliver(*parts[number])
    table.sweep_later()
    assert (names(table.stated(0, 1)), [], [2]) == (table.closings(), table.missing(), runs(table))


@pytest.mark.parametrize("order", list(itertools.permutations(range(5)))[::7])
def test_any_order_of_uploads_ends_with_the_newest_commit(two_commits: Path, order: tuple[int, ...]) -> None:
    """Programs that copy a table do not know that its log should come last."""
    table = Table(two_commits)
    files = table.new_files()
    for number in order:
        table.deliver(*table.copy(files[number]))
    table.sweep_later()
    assert (names(table.stated(1)), []) == (table.closings()[-1:], table.missing())
    assert len(table.closings()) <= 2


def test_commits_whose_events_are_all_lost_are_found_by_the_sweep(two_commits: Path) -> None:
    """Each is closed, once."""
    table = Table(two_commits)
    table.copy()
    table.sweep_later()
    table.sweep_later()
    assert (names(table.stated(0, 1)), [2]) == (table.closings(), runs(table))


def test_a_commit_is_not_trained_on_while_files_of_a_newer_one_are_still_to_come(two_commits: Path) -> None:
    """It was closed, but a table that is copied slowly is trained on once, when its newest commit is closed."""
    table = Table(two_commits)
    (_, first), (_, both) = names(table.stated(0, 1))
    late = [name for name in table.new_files() if name in both - first]
    table.deliver(*table.copy(*[name for name in table.new_files() if name not in late]))
    table.sweep_later()
    before = runs(table)
    table.deliver(*table.copy(*late))
    assert (2, [], [2]) == (len(table.closings()), before, runs(table))


@pytest.mark.parametrize(("on_change", "trained"), [("notify", [1]), ("train", [1, 2])])
def test_a_compaction_starts_no_run(tmp_path: Path, on_change: str, trained: list[int]) -> None:
    """The records are the same; people are notified of other commits only."""
    table = Table(tmp_path, on_change=on_change)
    table.commit(rows(0), rows(1, split="validation"))
    runs(table)
    table.commit(rows(2))
    runs(table)
    table.compact()
    table.deliver(*table.copy())
    table.sweep_later()
    rows_of_outbox = table.world.ledger.notification_rows.values()
    about = {row.content["generation"] for row in rows_of_outbox if row.outcome == "version_changed"}
    assert (3, trained, {2} - set(trained)) == (len(table.closings()), runs(table), about)


def test_a_compaction_before_the_first_run_starts_it(table: Table) -> None:
    """The request of the commit before it is superseded."""
    table.commit(rows(0), rows(1, split="validation"))
    table.commit(rows(2))
    table.compact()
    table.deliver(*table.copy())
    assert (3, [3]) == (len(table.closings()), runs(table))


def test_a_file_that_is_not_as_its_commit_states_is_rejected(table: Table, tmp_path_factory: Any) -> None:
    """The order does not matter; a correct upload closes the version."""
    table.write(rows(0), rows(1, split="validation"))
    other = Table(tmp_path_factory.mktemp("other"))
    other.write(rows(0, num=5))
    train, validation, log = table.new_files()
    wrong = other.folder.joinpath(other.new_files()[0]).read_bytes()
    table.deliver(table.put(train, wrong), *table.copy(validation, log))
    (rejected,) = next(describe_version(VERSION, table.world.services).splits[0].rejected for _ in (0,))
    assert ("as _delta_log states in version 0" in rejected.reasons[0].message, []) == (True, table.closings())
    table.deliver(table.put(train, wrong + b"PAR1"))
    assert ([], [train]) == (table.closings(), table.missing())
    table.deliver(*table.copy(train))
    assert (names(table.stated(0)), []) == (table.closings(), table.missing())


def test_what_is_missing_is_named(two_commits: Path) -> None:
    """A file, a commit, the whole log."""
    table = Table(two_commits)
    first, second, validation, log, last = table.new_files()
    table.deliver(*table.copy(first, second, validation))
    assert ["_delta_log, the log of the Delta table"] == table.missing()
    table.deliver(*table.copy(last))
    assert "00000000000000000000.json, the first commit of the table, is missing" in table.missing()[0]
    table.deliver(*table.copy(log))
    assert [] == table.missing()
    gone = table.closings()[0][1].intersection({first, second}).pop()
    table = Table(two_commits)
    table.deliver(*table.copy(*({first, second} - {gone}), validation, log, last))
    assert ([], gone) == (table.closings(), table.missing()[-1])


def test_a_file_that_no_commit_names_is_no_part(two_commits: Path) -> None:
    """A writer may be in the midst of its work, or have failed."""
    table = Table(two_commits)
    paths = table.copy()
    table.deliver(table.put("split=train/part-9.parquet", b"broken"), *paths)
    (train, _) = describe_version(VERSION, table.world.services).splits
    assert (2, ("split=train/part-9.parquet",)) == (len(table.closings()), train.unlisted)


@pytest.mark.parametrize("what", ["rejected", "vacuumed"])
def test_a_commit_that_can_never_be_whole_is_passed_over(table: Table, what: str) -> None:
    """A later commit removes one of its files."""
    table.commit(rows(0), rows(1, split="validation"))
    table.write(rows(2))
    bad, log = table.new_files()
    table.copied.update((bad, log))
    if what == "rejected":
        table.deliver(table.put(bad, b"broken"))
    table.deliver(table.put(log, (table.folder / log).read_bytes()))
    assert (1, [bad]) == (len(table.closings()), table.missing())
    table.commit(rows(3), rows(4, split="validation"), mode="overwrite")
    assert (names(table.stated(0, 2)), []) == (table.closings(), table.missing())


def test_a_commit_without_a_file_of_a_split_is_passed_over(table: Table) -> None:
    """A table may be created empty, or filled split by split."""
    table.commit(rows(0))
    assert ([], True) == (table.closings(), "validation: no file" in table.missing()[0])
    table.commit(rows(1, split="validation"))
    assert (names(table.stated(1)), []) == (table.closings(), table.missing())


def test_a_commit_that_is_refused_as_a_set_does_not_hold_up_the_next(table: Table) -> None:
    """Twice the same rows under two names are refused; a later commit without them closes."""
    table.commit(rows(0), rows(1, split="validation"))
    copied = (table.folder / next(name for name in table.copied if "train" in name)).read_bytes()
    again = {"path": "split=train/again.parquet", "size": len(copied), "dataChange": True}
    add, remove = ({"add": again}, {"remove": again})
    table.deliver(table.put(again["path"], copied))  # type: ignore[arg-type]
    table.deliver(table.put(f"_delta_log/{1:020}.json", json.dumps(add).encode()))
    assert 1 == len(table.closings())
    table.deliver(table.put(f"_delta_log/{2:020}.json", json.dumps(remove).encode()))
    assert (1, []) == (len(table.closings()), table.missing())


def test_a_table_that_cannot_be_read_says_why(table: Table) -> None:
    """This lasts until a later commit corrects it."""
    table.write(rows(0), rows(1, split="validation"))
    paths = table.copy()
    mapped = {"metaData": {"configuration": {"delta.columnMapping.mode": "name"}}}
    paths.append(table.put(f"_delta_log/{1:020}.json", json.dumps(mapped).encode()))
    table.deliver(*paths)
    assert ([0], True) == ([v for v, _ in table.closings()], "column mapping (name)" in table.missing()[0])


@pytest.fixture(scope="module")
def cleaned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a table whose log begins with the checkpoint of version 1, which version 2 follows."""
    table = Table(tmp_path_factory.mktemp("cleaned"))
    table.write(rows(0), rows(1, split="validation"))
    table.write(rows(2), rows(3, split="validation"), mode="overwrite")
    clean_log(table.folder)
    table.write(rows(4))
    (table.folder / "_delta_log" / f"{1:020}.json").unlink()
    for path in set(table.folder.rglob("*.parquet")) - {Path(uri) for uri in DeltaTable(table.folder).file_uris()}:
        if "_delta_log" not in path.parts:
            path.unlink()
    return table.folder


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_a_checkpoint_closes_once_as_the_version_that_it_stands_for(cleaned: Path, order: tuple[int, ...]) -> None:
    """Events of its files, the checkpoint and the next commit may arrive in any order, twice or never."""
    for lost in (None, 2):
        table = Table(cleaned)
        paths = table.copy()
        parts = [paths[:-3], paths[-3:-2], paths[-2:]]
        for number in (*order, *order):
            table.deliver(*(parts[number] if number != lost else ()))
        table.sweep_later()
        table.sweep_later()
        assert (names(table.stated(1, 2)), [], [2]) == (table.closings(), table.missing(), runs(table))


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_a_checkpoint_may_be_copied_before_or_after_what_it_names(cleaned: Path, order: tuple[int, ...]) -> None:
    """Until it exists, status names the first commit; in the end the newest version is closed."""
    table = Table(cleaned)
    files = table.new_files()
    parts = [files[:-3], files[-3:-2], files[-2:]]
    for number in order:
        table.deliver(*table.copy(*parts[number]))
    table.sweep_later()
    assert (names(table.stated(1, 2))[-1:], []) == (table.closings()[-1:], table.missing())


def test_a_log_that_is_cleaned_up_in_place_goes_on_with_the_next_commit(table: Table) -> None:
    """The clean-up itself closes nothing."""
    for number in (0, 2):
        table.commit(rows(number), rows(number + 1, split="validation"))
    first = names(table.stated(0, 1))
    clean_log(table.folder)
    table.deliver(*table.copy())
    for name in sorted(table.copied):
        if not (table.folder / name).exists():
            table.world.remove(f"{VERSION}/{name}")
    table.sweep_later()
    assert (first, []) == (table.closings(), table.missing())
    table.commit(rows(4))
    table.sweep_later()
    assert ([*first, *names(table.stated(2))], []) == (table.closings(), table.missing())
