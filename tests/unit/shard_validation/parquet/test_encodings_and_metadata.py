"""Encodings, Thrift and metadata of Parquet on handmade bytes; fuzzing has found several of these cases."""

from __future__ import annotations

import pytest

from shard_validation.parquet.encodings import PageDataError, hybrid_values
from shard_validation.parquet.metadata import MetadataError, metadata_of
from shard_validation.parquet.thrift import I32, CompactReader, ThriftError, ThriftTooComplexError

COLUMN = {1: 1, 2: [0], 3: [b"label"], 4: 0, 5: 3, 6: 30, 7: 30, 9: 4}
SCHEMA = [{4: b"schema", 5: 1}, {1: 1, 3: 0, 4: b"label"}]
FILE = {2: SCHEMA, 3: 3, 4: [{1: [{3: COLUMN}], 2: 30, 3: 3}]}


@pytest.mark.parametrize(
    ("content", "bit_width", "count", "expected"),
    [
        ("c801 01", 1, 100, [1] * 100),
        ("03 88c6fa", 3, 8, [0, 1, 2, 3, 4, 5, 6, 7]),
        ("03 88c6fa", 3, 5, [0, 1, 2, 3, 4]),
        ("04 05 06 01", 3, 5, [5, 5, 1, 1, 1]),
        ("03", 0, 8, [0] * 8),
        ("", 3, 0, []),
    ],
)
def test_hybrid_values(content: str, bit_width: int, count: int, expected: list[int]) -> None:
    """Runs and bit-packed groups are unpacked as in Encodings.md."""
    assert expected == list(hybrid_values(memoryview(bytes.fromhex(content)), bit_width, count))


@pytest.mark.parametrize(
    ("content", "bit_width", "count"),
    [
        pytest.param("", 1, 1, id="nothing"),
        pytest.param("80", 1, 1, id="head cut"),
        pytest.param("ffffffffffff", 1, 1, id="head without end"),
        pytest.param("04", 1, 1, id="value of a run cut"),
        pytest.param("04 02", 1, 1, id="value of a run too large"),
        pytest.param("00 01", 1, 1, id="run of nothing"),
        pytest.param("69 88c6", 3, 5, id="group cut"),
    ],
)
def test_broken_hybrid_values(content: str, bit_width: int, count: int) -> None:
    """Content that is cut off or impossible raises PageDataError."""
    with pytest.raises(PageDataError):
        list(hybrid_values(memoryview(bytes.fromhex(content)), bit_width, count))


@pytest.mark.parametrize(
    "content", ["", "15", "1d", "18ff01", "15" + "80" * 11, "3f", "1957", "1b01ff", "17" + "00" * 7]
)
def test_broken_thrift(content: str) -> None:
    """A struct that is cut off, or has unknown types, raises ThriftError."""
    with pytest.raises(ThriftError):
        CompactReader(bytes.fromhex(content), 100).read_struct({})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(bytes.fromhex("19f5ffffff7f") + bytes(5000), "more values", id="long list"),
        pytest.param(b"\x1c" * 5000, "nested", id="structs"),
        pytest.param(b"\x19" * 5000, "nested", id="lists"),
        pytest.param(b"\x1b" + b"\x01\xbb" * 5000, "nested", id="maps"),
    ],
)
def test_thrift_is_bounded(content: bytes, message: str) -> None:
    """Long lists and deep structs, lists and maps are rejected at the limit, without taking memory."""
    with pytest.raises(ThriftTooComplexError, match=message):
        CompactReader(content, 3000).read_struct({})


def test_thrift_field_of_another_type() -> None:
    """A field of another type than wanted is skipped, as Thrift's own readers do."""
    assert {} == CompactReader(bytes.fromhex("1602 00"), 100).read_struct({1: I32})
    assert {1: 1} == CompactReader(bytes.fromhex("1502 00"), 100).read_struct({1: I32})


def test_sound_metadata() -> None:
    """A consistent footer is read."""
    metadata = metadata_of(FILE, 100)
    assert (3, ["label"], ["INT32"]) == (
        metadata.num_rows,
        [leaf.path for leaf in metadata.leaves],
        [leaf.physical_type for leaf in metadata.leaves],
    )


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, id="nothing"),
        pytest.param({**FILE, 3: -1}, id="negative rows"),
        pytest.param({**FILE, 4: [{1: [], 2: 0, 3: 3}]}, id="row group without columns"),
        pytest.param({**FILE, 4: [{1: [{3: COLUMN}] * 2, 2: 0, 3: 3}]}, id="row group of too many columns"),
        pytest.param({**FILE, 4: [{1: [{}], 2: 0, 3: 3}]}, id="column without metadata"),
        pytest.param({**FILE, 4: [{1: [{3: {**COLUMN, 1: 2}}], 2: 0, 3: 3}]}, id="another type than the schema's"),
        pytest.param({**FILE, 4: [{1: [{3: {**COLUMN, 3: [b"x"]}}], 2: 0, 3: 3}]}, id="another name"),
        pytest.param({**FILE, 4: [{1: [{3: {**COLUMN, 4: 99}}], 2: 0, 3: 3}]}, id="unknown codec"),
        pytest.param({**FILE, 4: [{1: [{3: {**COLUMN, 2: [[]]}}], 2: 0, 3: 3}]}, id="encoding that is a list"),
        pytest.param({**FILE, 4: [{1: [{3: {**COLUMN, 11: 9}}], 2: 0, 3: 3}]}, id="dictionary behind the data"),
        pytest.param({**FILE, 4: [{1: [{1: b"other", 3: COLUMN}], 2: 0, 3: 3}]}, id="column in another file"),
        pytest.param({**FILE, 4: [{1: [{3: COLUMN}], 2: 0, 3: -3}]}, id="row group of negative rows"),
        pytest.param({**FILE, 2: []}, id="empty schema"),
        pytest.param({**FILE, 2: SCHEMA[:1]}, id="schema cut"),
        pytest.param({**FILE, 2: [*SCHEMA, SCHEMA[1]]}, id="schema of two trees"),
        pytest.param({**FILE, 2: [{4: b"s", 5: 1}] * 40}, id="schema 40 deep"),
        pytest.param({**FILE, 2: [{4: b"s", 5: -1}, SCHEMA[1]]}, id="negative children"),
        pytest.param({**FILE, 2: [SCHEMA[0], {1: 7, 4: b"label"}]}, id="fixed length without one"),
    ],
)
def test_inconsistent_metadata(fields: dict[int, object]) -> None:
    """An inconsistent footer raises MetadataError; some of these abort the process in pyarrow's accessors."""
    with pytest.raises(MetadataError):
        metadata_of(fields, 100)
