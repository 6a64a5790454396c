"""`landfall pack table`: a table of any size, of any type that is a feature, in bounded memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cli.pack.tables import BATCH_BYTES, CSV_BLOCK_BYTES, Table, read_table
from tests.support.processes import REPOSITORY, child_environment
from tests.support.terminal import landfall

PACK = """
import sys
import pyarrow as pa
from cli.main import main
try:
    main(sys.argv[1:])
finally:
    print(pa.default_memory_pool().max_memory())
"""


def read(path: Path, **options: object) -> Table:
    """Read a table with the rows beside it."""
    values = {"label": None, "validation_share": 0.0, "seed": 0, **options}
    return read_table(path, path.with_suffix(".rows"), **values)  # type: ignore[arg-type]


@pytest.mark.processes
@pytest.mark.parametrize("suffix", ["csv", pytest.param("parquet", marks=pytest.mark.slow)])
def test_memory_is_bounded(tmp_path: Path, suffix: str) -> None:
    """Only some batches of a table of 84 MB are in memory at a time, for any size of pages and blocks."""
    rows = pd.DataFrame({"text": [f"t{i:05d}" * 2000 for i in range(7_000)], "label": [i % 10 for i in range(7_000)]})
    path = tmp_path / f"table.{suffix}"
    if suffix == "parquet":
        rows.to_parquet(path, row_group_size=500)
    else:
        rows.to_csv(path, index=False)
    arguments = ["pack", "table", str(path), "--to", str(tmp_path / "shards"), "--label", "label", "--shards", "2"]
    arguments += ["--validation-share", "0", "--no-init"]
    ended = subprocess.run(
        [sys.executable, "-c", PACK, *arguments],
        cwd=REPOSITORY,
        env=child_environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    packed, features, max_bytes = ended.stdout.splitlines()
    assert packed.startswith("Packed 7,000 examples into 2 shards")
    assert features == "Features: text text, label int64."
    assert int(max_bytes) < 8 * BATCH_BYTES
    assert [] == [p.name for p in (tmp_path / "shards").iterdir() if p.name.startswith(".")]


@pytest.mark.parametrize(
    ("first", "later", "kind", "value"),
    [("1", "0.5", "float", 0.5), ("1", "x", "bytes", "x"), ("", "7", "int64", 7), ("0.5", "x", "bytes", "x")],
)
def test_types_that_later_rows_widen(tmp_path: Path, first: str, later: str, kind: str, value: object) -> None:
    """What the first megabytes of a CSV file look like does not decide on the rest."""
    path = tmp_path / "table.csv"
    padding = "p" * 1000
    lines = [f"{first},{padding}"] * (CSV_BLOCK_BYTES // 1000 + 100) + [f"{later},{padding}"]
    path.write_text("\n".join(["x,padding", *lines]) + "\n")
    table = read(path)
    assert (kind, value) == (table.features[0].kind, table.columns["x"][len(lines) - 1].as_py())


def test_rows_longer_than_a_block(tmp_path: Path) -> None:
    """A CSV file with texts of megabytes is read all the same."""
    path = tmp_path / "table.csv"
    path.write_text("x,y\n1,a\n" + f"2,{'b' * (3 * CSV_BLOCK_BYTES)}\n")
    assert [1, 3 * CSV_BLOCK_BYTES] == [len(text.as_py()) for text in read(path).columns["y"]]


def test_categories_of_pandas(tmp_path: Path) -> None:
    """A categorical column is the texts that it stands for."""
    path = tmp_path / "table.parquet"
    pd.DataFrame({"kind": pd.Categorical(["a", "b", "a"])}).to_parquet(path)
    table = read(path, label="kind")
    assert (("a", "b"), [0, 1, 0]) == (table.classes, [entry.label for entry in sorted(table.splits["train"])])


@pytest.mark.parametrize(
    ("column_type", "value", "described"),
    [
        (pa.string_view(), "a", "x text"),
        (pa.binary_view(), b"a", "x bytes"),
        (pa.list_(pa.string_view()), ["a", "b"], "x text list"),
        (pa.list_view(pa.int64()), [1, 2], "x int64 list"),
        (pa.large_list_view(pa.float32()), [0.5], "x float list"),
    ],
)
def test_views_of_arrow(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, column_type: pa.DataType, value: object, described: str
) -> None:
    """Texts, bytes and lists that are views are features like others."""
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table({"x": pa.array([value] * 3, column_type)}), path)
    status, out, err = landfall(
        capsys, "pack", "table", path, "--no-init", "--to", tmp_path / "shards", "--shards", 1
    )
    assert (0, "", f"Features: {described}.") == (status, err, out.splitlines()[-1])


def test_a_file_that_is_no_table(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Bytes of any kind are reported in one paragraph."""
    for content in (b"\xdb\xad\x01\x00\xaf,\n\x05\xd2", b"", b"\n\n", bytes(2000)):
        (tmp_path / "table.csv").write_bytes(content)
        status, _, err = landfall(capsys, "pack", "table", tmp_path / "table.csv", "--to", tmp_path / "shards")
        assert (1, False) == (status, "unexpected error" in err)


def test_columns_that_are_no_features(tmp_path: Path) -> None:
    """A column of dates or structures is named, with its type."""
    for values in (pa.array([0], pa.timestamp("s")), pa.array([{"a": 1}])):
        path = tmp_path / "table.parquet"
        pq.write_table(pa.table({"when": values}), path)
        with pytest.raises(Exception, match=r"column when has type .*, which no feature has"):
            read(path)


def test_nothing_is_left_where_packing_fails(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The copy of the values goes, also where the table was refused."""
    path = tmp_path / "table.csv"
    path.write_text("a,b\n1,2\n")
    status, _, err = landfall(capsys, "pack", "table", path, "--to", tmp_path / "shards", "--label", "c")
    assert (1, True, []) == (
        status,
        "there is no column 'c' for --label" in err,
        list((tmp_path / "shards").iterdir()),
    )
