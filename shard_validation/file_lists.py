"""Lists of a version's files that come with the data: names and, if stated, sizes, checksums and counts.

``SHA256SUMS`` and ``MD5SUMS`` as coreutils write them, CSV files, ``dataset.json`` of ``landfall pack``,
``dataset_info.json`` of TensorFlow Datasets, and the lists of the Hugging Face Hub. A list is untrusted, so its size
and the number of its names are limited, and every error names its line.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from shard_validation.reasons import Reason, ReasonCode
from shared.safe_text import shown
from shared.shard_names import MAX_NAME_CHARS, MAX_SHARDS_PER_SPLIT
from shared.source_names import DATASET_FILE

MAX_LIST_BYTES = 32 << 20
"""Twice what 100,000 names take with a SHA-256 each."""
MAX_FILES = MAX_SHARDS_PER_SPLIT
MAX_LINE_BYTES, MAX_LINES = 4096, 2 * MAX_FILES
MAX_NUMBER = 2**63 - 1
_MAX_DIGITS = 19
TFDS_FILE = "dataset_info.json"
TFDS_TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
"""Names that TensorFlow Datasets gives unless it states another template (``tensorflow_datasets/core/naming.py``)."""
TFDS_DIGITS = 5
README_FILE, INFOS_FILE = HUB_FILES = ("README.md", "dataset_infos.json")
"""Lists of the Hugging Face Hub: see shard_validation/hub_lists.py."""
_HEX_DIGITS = {"sha256": 64, "md5": 32, "crc32c": 8}
HASHES = ("sha256", "md5")
"""Checksums that are taken only where a list may state them; CRC32C always is."""
_COLUMNS = ("name", "split", "size", "records", *_HEX_DIGITS)
_SUM = re.compile(r"(?P<escaped>\\?)(?P<digest>[0-9A-Fa-f]+) [ *](?P<name>.+)", re.DOTALL)
_TAGGED_SUM = re.compile(
    r"(?P<escaped>\\?)(?P<algorithm>[A-Za-z0-9]+) \((?P<name>.+)\) = (?P<digest>[0-9A-Fa-f]+)", re.DOTALL
)
_ESCAPES = {"\\\\": "\\", "\\n": "\n", "\\r": "\r"}


class FileListError(ValueError):
    """A list cannot be understood; the message names the file, the line and the problem."""


@dataclass(frozen=True, kw_only=True)
class StatedFile:
    """What a list states of one file."""

    name: str
    """Path within the version."""
    place: str
    """Where the list names it, such as ``line 7``."""
    split: str | None = None
    size_bytes: int | None = None
    num_records: int | None = None
    checksums: Mapping[str, str] = field(default_factory=dict)
    """Algorithm (``sha256``, ``md5``, ``crc32c``) → lower-case hexadecimal digits."""

    def difference(
        self, *, size_bytes: int, num_records: int, checksums: Mapping[str, str]
    ) -> tuple[str, str] | None:
        """Return the stated and the found value in words, if they differ; None if everything agrees."""
        if self.size_bytes not in (None, size_bytes):
            return f"{self.size_bytes} bytes", f"{size_bytes} bytes"
        for algorithm, stated in self.checksums.items():
            if (found := checksums.get(algorithm)) not in (None, stated):
                return f"{algorithm.upper()} {stated}", str(found)
        if self.num_records not in (None, num_records):
            return f"{self.num_records} records", f"{num_records} records"
        return None


@dataclass(frozen=True, kw_only=True)
class FileList:
    """A list that was read."""

    source: str
    """Name of the list."""
    files: Mapping[str, StatedFile]
    """Path within the version → what the list states of the file."""
    totals: Mapping[str, int] = field(default_factory=dict)
    """Split → its number of records, if it is stated for the split as a whole."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Split → bytes of its records, if they are stated for the split as a whole."""
    find: Callable[[Iterable[str]], Iterable[StatedFile]] | None = None
    """Finds files that the list does not name among the uploaded ones; None if the list names all files."""

    def among(self, names: Iterable[str]) -> Mapping[str, StatedFile]:
        """Return the files of the version, those that are found among these names too. Raises FileListError."""
        found = () if self.find is None else self.find(names)
        return {**{file.name: file for file in found}, **self.files}

    def wrong_total(self, split: str, num_records: int, sizes: Sequence[int] = ()) -> str | None:
        """Return why a split with this total number of records is not as stated; None if it is as stated.

        ``sizes`` are the bytes that may be stated: of the records, and of the files; empty if they are unknown.
        """
        stated, size = self.totals.get(split), self.sizes.get(split)
        if stated is None and self.find is not None:
            return f"it states no number of records of split {split}; write its num_examples into dataset_info"
        if stated is not None and stated != num_records:
            return f"split {split}: expected {stated} records (num_examples), got {num_records} in its files; {_FIX}"
        if size is not None and sizes and size not in sizes:
            return f"split {split}: expected {size} bytes of records (numBytes), got {sizes[0]} in its files; {_FIX}"
        return None


_FIX = "upload the files that differ or are missing, delete those that do not belong to it, or correct the number"


def reason_against(
    stated: FileList, name: str, *, size_bytes: int, num_records: int, checksums: Mapping[str, str]
) -> Reason | None:
    """Return why a file differs from its list; None if it agrees, or is not listed."""
    file = stated.files.get(name)
    if file is None:
        return None
    found = file.difference(size_bytes=size_bytes, num_records=num_records, checksums=checksums)
    if found is None:
        return None
    expected, seen = f"{found[0]}, as {stated.source} states in {file.place}", found[1]
    return Reason(
        code=ReasonCode.DIFFERS_FROM_LIST,
        shard=name,
        expected=expected,
        seen=seen,
        message=f"{shown(name)}: expected {expected}, got {seen}; upload the file again, or a corrected list",
    )


def list_checksums(name: str) -> tuple[str, ...]:
    """Return the checksums to take for a list of this name. Raises FileListError if the name implies no format."""
    return _format(name)[1]


def states_splits(name: str) -> bool:
    """Whether a list of this name may state the split of each file."""
    return _format(name)[0] is not _read_sums


def read_file_list(name: str, content: bytes) -> FileList:
    """Read a list in the format that its name implies. Raises FileListError."""
    from shard_validation.hub_lists import HubList, read_hub_list

    read, _ = _format(name)
    if len(content) > MAX_LIST_BYTES:
        raise FileListError(f"{name}: more than {MAX_LIST_BYTES >> 20} MiB; name fewer files")
    stated = HubList(files=read(name, content)) if read is not None else read_hub_list(name, content)
    files: dict[str, StatedFile] = {}
    for file in stated.files:
        problem = problem_of_name(file.name)
        if file.name in files:
            problem = f"{files[file.name].place} names it already"
        elif len(files) >= MAX_FILES:
            problem = f"a version has at most {MAX_FILES:,} files"
        if problem is not None:
            raise FileListError(f"{name}: {file.place}: {shown(file.name[:MAX_NAME_CHARS])}: {problem}")
        files[file.name] = file
    if not files and stated.find is None:
        raise FileListError(f"{name}: it names no file")
    sizes = _tfds_sizes(content) if name == TFDS_FILE else {}
    return FileList(source=name, files=files, totals=stated.totals, sizes=sizes, find=stated.find)


_Read = Callable[[str, bytes], Iterator[StatedFile]]


def _format(name: str) -> tuple[_Read | None, tuple[str, ...]]:
    """Return how to read a list, and its checksums; None for those of the Hub, which state more than files."""
    if name in _JSON_FORMATS:
        return _read_json, ()
    if name in HUB_FILES:
        return None, ()
    lower = name.lower()
    if lower.endswith(".csv"):
        return _read_csv, HASHES
    for algorithm in HASHES:
        if algorithm in lower:
            return _read_sums, (algorithm,)
    known = ", ".join(("SHA256SUMS", "MD5SUMS", *_JSON_FORMATS, *HUB_FILES))
    raise FileListError(f"{name}: its name implies no known format; name it {known}, or give it the suffix .csv")


def problem_of_name(name: str) -> str | None:
    """Return why a list may not name a path; None if it may."""
    parts = name.split("/")
    if not name.isprintable() or "\\" in name:
        return "a path has printable characters, and / instead of a backslash between folders"
    if name.startswith("/") or ".." in parts or "." in parts or not all(parts):
        return "a path is relative to the version's folder, without . and .. and without empty folders"
    if len(name) > MAX_NAME_CHARS:
        return f"a path has at most {MAX_NAME_CHARS} characters"
    return None


def _lines(name: str, content: bytes) -> Iterator[tuple[int, str]]:
    """Yield number and text of the lines that are not empty."""
    for number, line in enumerate(io.BytesIO(content), start=1):
        if len(line) > MAX_LINE_BYTES or number > MAX_LINES:
            refuse(name, number, f"a list has at most {MAX_LINES:,} lines of {MAX_LINE_BYTES:,} bytes")
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError:
            refuse(name, number, "it is not UTF-8; write the list as UTF-8")
        if text.strip():
            yield number, text


def refuse(name: str, place: int | str, problem: str) -> NoReturn:
    """Raise FileListError for a place of a list, such as the number of a line."""
    where = f"line {place}" if isinstance(place, int) else place
    raise FileListError(f"{name}: {where}: {problem}")


def _read_sums(name: str, content: bytes) -> Iterator[StatedFile]:
    """Yield what ``sha256sum`` or ``md5sum`` wrote, also with ``--tag``. A leading backslash escapes the name."""
    algorithm = _format(name)[1][0]
    for number, line in _lines(name, content):
        match = _SUM.fullmatch(line) or _TAGGED_SUM.fullmatch(line)
        if match is None:
            refuse(name, number, f"expected a checksum, two spaces and a file's name, got {shown(line[:80])}")
        tagged = match.groupdict().get("algorithm") or algorithm
        if tagged.lower() != algorithm:
            refuse(name, number, f"expected {algorithm.upper()}, as the list's name says, got {shown(tagged[:20])}")
        digest = _digest(name, number, algorithm, match["digest"])
        path = _unescaped(name, number, match["name"]) if match["escaped"] else match["name"]
        yield StatedFile(name=path.removeprefix("./"), place=f"line {number}", checksums={algorithm: digest})


def _unescaped(name: str, line: int, text: str) -> str:
    def replaced(match: re.Match[str]) -> str:
        if match[0] not in _ESCAPES:
            refuse(name, line, f"{shown(match[0])} is not an escape sequence of coreutils")
        return _ESCAPES[match[0]]

    return re.sub(r"\\.?", replaced, text, flags=re.DOTALL)


def _read_csv(name: str, content: bytes) -> Iterator[StatedFile]:
    """Yield the rows of a CSV with a header."""
    numbers: list[int] = []

    def lines() -> Iterator[str]:
        for number, line in _lines(name, content):
            numbers.append(number)
            yield line

    rows = csv.reader(lines(), strict=True)
    try:
        columns = [column.strip().lower() for column in next(rows, [])]
        _check_columns(name, columns)
        for row in rows:
            yield _row(name, numbers[-1], columns, row)
    except csv.Error as error:
        refuse(name, numbers[-1], f"it is not a CSV file: {error}")


def _check_columns(name: str, columns: Iterable[str]) -> None:
    every = list(columns)
    unknown = [column for column in every if column not in _COLUMNS]
    if unknown:
        known = ", ".join(_COLUMNS)
        refuse(name, 1, f"{shown(unknown[0][:80])!r} is not a known column; write a header of these: {known}")
    if "name" not in every or len(set(every)) < len(every):
        refuse(name, 1, "the header needs the column name, and each column once")


def _row(name: str, line: int, columns: list[str], row: list[str]) -> StatedFile:
    if len(row) != len(columns):
        refuse(name, line, f"expected {len(columns)} columns, got {len(row)}")
    cells = {column: cell.strip() for column, cell in zip(columns, row, strict=True) if cell.strip()}
    return StatedFile(
        name=cells.get("name", "").removeprefix("./"),
        place=f"line {line}",
        split=cells.get("split"),
        size_bytes=_number(name, line, "size", cells.get("size")),
        num_records=_number(name, line, "records", cells.get("records")),
        checksums={
            algorithm: _digest(name, line, algorithm, cells[algorithm])
            for algorithm in _HEX_DIGITS
            if algorithm in cells
        },
    )


def _number(name: str, place: int | str, column: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS and int(text) <= MAX_NUMBER):
        refuse(name, place, f"{column}: {shown(text[:40])!r} is not a whole number from 0")
    return int(text)


def _digest(name: str, place: int | str, algorithm: str, text: str) -> str:
    digest, length = text.lower(), _HEX_DIGITS[algorithm]
    if re.fullmatch(r"[0-9a-f]*", digest) is None or len(digest) != length:
        refuse(name, place, f"{algorithm}: expected {length} hexadecimal digits, got {shown(text[:80])!r}")
    return digest


def _read_json(name: str, content: bytes) -> Iterator[StatedFile]:
    """Yield the files of a JSON list."""
    try:
        yield from _JSON_FORMATS[name](name, json.loads(content))
    except FileListError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        problem = shown(repr(error)[:200])
        raise FileListError(f"{name}: it cannot be read as a list of files: {problem}") from error


def _landfall_files(name: str, members: Mapping[str, Any]) -> Iterator[StatedFile]:
    """Yield the shards of ``dataset.json``, as ``landfall pack`` writes it."""
    for split, of_split in members["splits"].items():
        for number, shard in enumerate(of_split["shards"]):
            place = f"shard {number} of split {shown(split)}"
            crc = shard.get("crc32c")
            yield StatedFile(
                name=str(shard["name"]),
                place=place,
                split=split,
                size_bytes=whole_number(name, place, "size_bytes", shard.get("size_bytes")),
                num_records=whole_number(name, place, "num_records", shard.get("num_records")),
                checksums={} if crc is None else {"crc32c": _digest(name, place, "crc32c", str(crc))},
            )


def _tfds_files(name: str, members: Mapping[str, Any]) -> Iterator[StatedFile]:
    """Yield the shards of ``dataset_info.json``: a template states their names."""
    for split in members["splits"]:
        lengths, of_split = split.get("shardLengths", []), str(split["name"])
        template = str(split.get("filepathTemplate") or TFDS_TEMPLATE)
        digits = max(TFDS_DIGITS, len(str(len(lengths))))
        values = {"DATASET": str(members["name"]), "SPLIT": of_split}
        values["FILEFORMAT"] = str(members.get("fileFormat", "tfrecord"))
        values["NUM_SHARDS"] = f"{len(lengths):0{digits}d}"
        # A path can be as long as the product of a template's and a name's length.
        if any(len(part) > MAX_NAME_CHARS for part in (template, *values.values())):
            refuse(name, f"split {shown(of_split)}", f"names and templates have at most {MAX_NAME_CHARS} characters")
        for index, length in enumerate(lengths):
            values["SHARD_INDEX"] = f"{index:0{digits}d}"
            values["SHARD_X_OF_Y"] = f"{values['SHARD_INDEX']}-of-{values['NUM_SHARDS']}"
            place = f"shard {index} of split {shown(of_split)}"
            yield StatedFile(
                name=_filled(template, values),
                place=place,
                split=of_split,
                num_records=whole_number(name, place, "shardLengths", length),
            )


def _tfds_sizes(content: bytes) -> dict[str, int]:
    """Return the bytes of each split's records that ``dataset_info.json`` states, of TFRecord files.

    They are those before framing and compression, or those of the files, if a Beam pipeline wrote them without
    shuffling. 0 stands for an unknown number.
    """
    members, sizes = json.loads(content), dict[str, int]()
    for split in members["splits"] if members.get("fileFormat", "tfrecord") == "tfrecord" else ():
        of_split = str(split["name"])
        size = whole_number(TFDS_FILE, f"split {shown(of_split)}", "numBytes", split.get("numBytes"))
        sizes |= {of_split: size} if size else {}
    return sizes


def _filled(template: str, values: Mapping[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: values[found[1]], template)


def whole_number(name: str, place: str, member: str, value: object) -> int | None:
    """Return a number of a list, also if it is written as a string. Raises FileListError."""
    if isinstance(value, (bool, float)):
        refuse(name, place, f"{member}: {value!r} is not a whole number from 0")
    return None if value is None else _number(name, place, member, str(value))


_JSON_FORMATS: Mapping[str, Callable[[str, Mapping[str, Any]], Iterator[StatedFile]]] = {
    DATASET_FILE: _landfall_files,
    TFDS_FILE: _tfds_files,
}
