"""Lists of a version's files: formats as their tools write them, and what is refused, with its line."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from pathlib import Path

import pytest

from shard_validation import file_lists
from shard_validation.file_lists import FileListError, list_checksums, read_file_list

SHA, MD5 = "ab" * 32, "cd" * 16


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (f"{SHA}  a.tfrecord", "a.tfrecord"),
        (f"{SHA.upper()} *train/a b.tfrecord", "train/a b.tfrecord"),
        (f"{SHA}  ./train/*.tfrecord\r", "train/*.tfrecord"),
        (f"SHA256 (train/a (1).tfrecord) = {SHA}", "train/a (1).tfrecord"),
        (f"\ufeff{SHA}  größe.parquet", "größe.parquet"),
    ],
)
def test_sums_are_read_as_coreutils_writes_them(line: str, name: str) -> None:
    """The formats are text and binary mode, --tag, and the names of find."""
    stated = read_file_list("SHA256SUMS", line.encode())
    assert {name: {"sha256": SHA}} == {key: file.checksums for key, file in stated.files.items()}


@pytest.mark.parametrize("options", [[], ["--binary"], ["--tag"]])
@pytest.mark.parametrize("algorithm", ["sha256", "md5"])
def test_the_tools_own_output_is_read(algorithm: str, options: list[str], tmp_path: Path) -> None:
    """The real programs, on names with blanks and brackets."""
    (tmp_path / "train").mkdir()
    for name in ("train/a.tfrecord", "train/b (1).tfrecord"):
        (tmp_path / name).write_bytes(name.encode())
    names = sorted(f"./{path.relative_to(tmp_path)}" for path in tmp_path.rglob("*.tfrecord"))
    command = [f"{algorithm}sum", *options, *names]
    written = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True).stdout
    stated = read_file_list(f"{algorithm.upper()}SUMS", written)
    expected = {name[2:]: hashlib.new(algorithm, name[2:].encode()).hexdigest() for name in names}
    assert expected == {name: file.checksums[algorithm] for name, file in stated.files.items()}


def test_a_csv_states_what_it_has_columns_for() -> None:
    """An empty cell states nothing."""
    text = f'name,split,size,records,sha256,md5,crc32c\na.tfrecord,train,7,2,{SHA},{MD5},0000beef\n"b,c",,,,,,\n'
    first, second = read_file_list("files.csv", text.encode()).files.values()
    assert ("line 2", "train", 7, 2) == (first.place, first.split, first.size_bytes, first.num_records)
    assert {"sha256": SHA, "md5": MD5, "crc32c": "0000beef"} == first.checksums
    assert ("b,c", None, None, None, {}) == (
        second.name,
        second.split,
        second.size_bytes,
        second.num_records,
        second.checksums,
    )


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("SHA256SUMS", b"", "SHA256SUMS: it names no file"),
        ("SHA256SUMS", b"\xff\xfea\x00", "line 1: it is not UTF-8"),
        ("SHA256SUMS", f"\n{SHA} a".encode(), "line 2: expected a checksum, two spaces and a file's name"),
        ("SHA256SUMS", f"{MD5}  a".encode(), "line 1: sha256: expected 64 hexadecimal digits"),
        ("MD5SUMS", f"SHA256 (a) = {SHA}".encode(), "line 1: expected MD5, as the list's name says, got SHA256"),
        ("SHA256SUMS", f"{SHA}  ../a".encode(), "line 1: ../a: a path is relative to the version's folder"),
        ("SHA256SUMS", f"{SHA}  /a".encode(), "line 1: /a: a path is relative"),
        ("SHA256SUMS", f"{SHA}  a//b".encode(), "line 1: a//b: a path is relative"),
        ("SHA256SUMS", f"{SHA}  a\\b".encode(), "line 1: a\\b: a path has printable characters"),
        ("SHA256SUMS", f"\\{SHA}  a\\nb".encode(), "line 1: a\\nb: a path has printable characters"),
        ("SHA256SUMS", f"\\{SHA}  a\\tb".encode(), "is not an escape sequence of coreutils"),
        ("SHA256SUMS", f"{SHA}  {'a' * 300}".encode(), "a path has at most 255 characters"),
        ("SHA256SUMS", f"{SHA}  a\n{SHA}  ./a".encode(), "line 2: a: line 1 names it already"),
        ("SHA256SUMS", f"{SHA}  \x1b[31ma".encode(), "a path has printable characters"),
        ("files.csv", b"name,sha265\na,b", "line 1: 'sha265' is not a known column"),
        ("files.csv", b"file\na", "line 1: 'file' is not a known column"),
        ("files.csv", b"size\n1", "line 1: the header needs the column name"),
        ("files.csv", b"name,name\na,a", "line 1: the header needs the column name, and each column once"),
        ("files.csv", b"name,size\na", "line 2: expected 2 columns, got 1"),
        ("files.csv", b"name,size\na,-1", "line 2: size: '-1' is not a whole number from 0"),
        ("files.csv", f"name,records\na,{'9' * 500}".encode(), "line 2: records: "),
        ("files.csv", "name,size\na,\u0661".encode(), "is not a whole number from 0"),
        ("files.csv", b'name\n"a', "line 2: it is not a CSV file"),
        ("files.csv", f"name\n{'a' * 200_000}".encode(), "line 2: a list has at most 200,000 lines of 4,096 bytes"),
        ("files.csv", b"\n" * 300_000, "line 200001: a list has at most"),
        ("files.csv", b"name,md5\na,zz", "line 2: md5: expected 32 hexadecimal digits, got 'zz'"),
        ("files.csv", b"name,md5\n,", "line 2: : a path is relative"),
        ("LISTING", b"", "LISTING: its name implies no known format"),
    ],
)
def test_what_a_list_may_not_say_is_refused_with_its_line(name: str, content: bytes, message: str) -> None:
    """The message is printable and short, whatever the list has."""
    with pytest.raises(FileListError) as caught:
        read_file_list(name, content)
    text = str(caught.value)
    assert (True, True, True) == (message in text, text.isprintable(), len(text) < 600), text


TFDS = {
    "name": "pictures",
    "fileFormat": "tfrecord",
    "splits": [
        {
            "name": "train",
            "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
            "numBytes": "4711",
            "shardLengths": ["30", "31"],
        },
        {"name": "test", "filepathTemplate": "{SPLIT}/part.{FILEFORMAT}-{SHARD_INDEX}", "shardLengths": [6]},
        {"name": "empty"},
    ],
}
"""As TensorFlow Datasets 4.9 writes it: 64-bit numbers are strings, and empty members are left out."""


def test_the_list_of_tensorflow_datasets_is_read() -> None:
    """Names follow from the template of each split."""
    stated = read_file_list("dataset_info.json", json.dumps(TFDS).encode())
    expected = {
        "pictures-train.tfrecord-00000-of-00002": ("train", 30),
        "pictures-train.tfrecord-00001-of-00002": ("train", 31),
        "test/part.tfrecord-00000": ("test", 6),
    }
    assert expected == {name: (file.split, file.num_records) for name, file in stated.files.items()}


def test_the_list_of_landfall_pack_is_read() -> None:
    """It has sizes, counts and CRC32C."""
    shard = {"name": "train-00000-of-00001.tfrecord", "num_records": 3, "size_bytes": 70, "crc32c": "0000BEEF"}
    members = {"format_version": 1, "splits": {"train": {"num_records": 3, "shards": [shard]}}}
    (file,) = read_file_list("dataset.json", json.dumps(members).encode()).files.values()
    assert (shard["name"], 70, 3, {"crc32c": "0000beef"}) == (
        file.name,
        file.size_bytes,
        file.num_records,
        file.checksums,
    )


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("dataset_info.json", b"{", "it cannot be read as a list of files: JSONDecodeError"),
        ("dataset_info.json", b"[]", "it cannot be read as a list of files: TypeError"),
        ("dataset_info.json", b"[" * 100_000, "it cannot be read as a list of files: RecursionError"),
        ("dataset_info.json", b'{"name": "a", "splits": [{"name": "t"}]}', "it names no file"),
        (
            "dataset_info.json",
            b'{"name": "a", "splits": [{"name": "t", "shardLengths": [1.5]}]}',
            "1.5 is not a whole",
        ),
        (
            "dataset_info.json",
            b'{"name": "../a", "splits": [{"name": "t", "shardLengths": ["1"]}]}',
            "shard 0 of split t: ../a-t.tfrecord-00000-of-00001: a path is relative",
        ),
        (
            "dataset_info.json",
            b'{"name": "a", "splits": [{"name": "t", "filepathTemplate": "x", "shardLengths": [1, 1]}]}',
            "shard 1 of split t: x: shard 0 of split t names it already",
        ),
        (
            "dataset_info.json",
            b'{"name": "a", "splits": [{"name": "t", "filepathTemplate": "{OTHER}", "shardLengths": [1]}]}',
            "KeyError('OTHER')",
        ),
        ("dataset.json", b'{"splits": {"train": {"shards": [{"name": 7}, {}]}}}', "KeyError('name')"),
        (
            "dataset.json",
            b'{"splits": {"t": {"shards": [{"name": "a", "crc32c": 7}]}}}',
            "expected 8 hexadecimal digits",
        ),
    ],
)
def test_what_a_json_list_may_not_say_is_refused(name: str, content: bytes, message: str) -> None:
    """Any structure may be wrong."""
    with pytest.raises(FileListError, match=re.escape(message)):
        read_file_list(name, content)


@pytest.mark.parametrize(
    "split",
    [
        {"name": "t" * 10_000, "filepathTemplate": "{SPLIT}" * 10},
        {"name": "t" * 100, "filepathTemplate": "{SPLIT}" * 10_000},
    ],
)
def test_a_template_that_repeats_a_name_is_refused_before_it_is_filled(split: dict[str, object]) -> None:
    """A list of 32 MB could otherwise state a path of terabytes."""
    content = json.dumps({"name": "a", "splits": [{**split, "shardLengths": ["1"]}]}).encode()
    with pytest.raises(FileListError, match=r"split t+…?: names and templates have at most 255 characters"):
        read_file_list("dataset_info.json", content)


def test_lists_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits are a number of bytes and of names."""
    monkeypatch.setattr(file_lists, "MAX_LIST_BYTES", 200)
    with pytest.raises(FileListError, match="more than 0 MiB"):
        read_file_list("SHA256SUMS", b"a" * 201)
    monkeypatch.setattr(file_lists, "MAX_FILES", 1)
    with pytest.raises(FileListError, match="line 2: b: a version has at most 1 files"):
        read_file_list("SHA256SUMS", f"{SHA}  a\n{SHA}  b".encode())


def test_the_name_says_which_checksums_to_take() -> None:
    """This is known before the list exists."""
    names = ("SHA256SUMS", "sha256sums.txt", "MD5SUMS", "files.csv", "dataset.json", "dataset_info.json")
    assert [("sha256",), ("sha256",), ("md5",), ("sha256", "md5"), (), ()] == [list_checksums(name) for name in names]
