"""The training reads everything that the validator accepts: every compression, encoding, page version and type.

The cases have to cover what the validator knows; a new compression or codec there fails here until it has a case.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shard_validation import DataRequirements, LocalFileSource, validate_shard
from shard_validation.parquet.metadata import CODECS
from shard_validation.parquet.validator import _KINDS as KINDS
from shared.manifest import FeatureKind, FeatureSpec
from shared.record_framing import Compression, frame_record
from tests.support.example_bytes import example_bytes
from training_job.data.parquet import ParquetSource
from training_job.data.tfrecord import TfrecordSource
from training_job.rank_plan import RecordRange

COMPRESSED: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "gzip": gzip.compress,
    "gzip in several members": lambda content: b"".join(gzip.compress(part) for part in (content[:99], content[99:])),
    "zlib": zlib.compress,
}
BYTES = [b"ab%d" % (i % 7) for i in range(40)]
LABELS = [i % 2 for i in range(40)]
UNWRITABLE_CODECS = {"LZO", "LZ4"}
"""No Python library writes these; pyarrow reads LZ4 as Hadoop wrote it, and neither side reads LZO."""
CODEC_NAMES = {"UNCOMPRESSED": "none", "LZ4_RAW": "lz4"}
ENCODINGS = {
    "PLAIN",
    "RLE_DICTIONARY",
    "RLE",
    "DELTA_BINARY_PACKED",
    "DELTA_LENGTH_BYTE_ARRAY",
    "DELTA_BYTE_ARRAY",
    "BYTE_STREAM_SPLIT",
}
"""All encodings of parquet.thrift except BIT_PACKED, an obsolete encoding of levels."""
BINARY = (
    pa.binary(),
    pa.large_binary(),
    pa.string(),
    pa.large_string(),
    pa.binary_view(),
    pa.string_view(),
    pa.binary(3),
)
LISTS = (pa.list_, pa.large_list, lambda item: pa.list_(item, 2), pa.list_view, pa.large_list_view)
NUMBERS = (pa.float32(), pa.float64(), pa.int32(), pa.int64(), pa.bool_())


@pytest.mark.parametrize("name", COMPRESSED)
def test_every_compression_of_a_tfrecord_shard(tmp_path: Path, name: str) -> None:
    """The compression is detected from the content, not from the name."""
    assert set(get_args(Compression)) == {name.partition(" ")[0] for name in COMPRESSED}
    records = [example_bytes({"image": value, "label": label}) for value, label in zip(BYTES, LABELS, strict=True)]
    path = tmp_path / "train-00000-of-00001"
    path.write_bytes(COMPRESSED[name](b"".join(map(frame_record, records))))
    features = specs("bytes")
    assert accepted(path, features)
    source = TfrecordSource(path_of=lambda _: path, image=features[0], label=features[1])
    read = [source.values(record) for record in source.lane((RecordRange(shard="s", start=3, stop=40),))]
    assert list(zip(BYTES, LABELS, strict=True))[3:] == [(image.numpy(), label.numpy()) for image, label in read]


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", sorted(set(CODECS) - UNWRITABLE_CODECS))
def test_every_codec_and_page_version_of_a_parquet_shard(tmp_path: Path, codec: str, version: str) -> None:
    """The codecs are those that the validator lists."""
    options = {"compression": CODEC_NAMES.get(codec, codec), "data_page_version": version}
    path = parquet(tmp_path, pa.array(BYTES), pa.array(LABELS), **options)
    assert {codec} == {chunk(path, i).compression.replace("LZ4", "LZ4_RAW") for i in range(2)}
    assert_read(path, "bytes", BYTES)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("encoding", sorted(ENCODINGS))
def test_every_encoding_of_a_parquet_shard(tmp_path: Path, encoding: str, version: str) -> None:
    """Each encoding is tried on a column that may have it."""
    label = pa.array(LABELS).cast(pa.bool_() if encoding == "RLE" else pa.int64())
    column = "image" if "BYTE_ARRAY" in encoding else "label"
    options: dict[str, Any] = {"use_dictionary": True}
    if encoding != "RLE_DICTIONARY":
        options = {"use_dictionary": False, "column_encoding": {column: encoding}}
    path = parquet(tmp_path, pa.array(BYTES), label, data_page_version=version, **options)
    assert encoding in chunk(path, ("image", "label").index(column)).encodings
    assert_read(path, "bytes", BYTES)


@pytest.mark.parametrize("kind", BINARY, ids=str)
@pytest.mark.parametrize("wrapped", ["", "hugging_face", "dictionary"])
def test_every_type_of_bytes(tmp_path: Path, kind: pa.DataType, wrapped: str) -> None:
    """Types of Arrow, the structure that Hugging Face writes, and dictionaries."""
    plain = pa.array(BYTES, pa.binary()).cast(pa.binary(3) if kind == pa.binary(3) else pa.large_binary())
    column = plain.cast(kind)
    if wrapped == "hugging_face":
        column = pa.StructArray.from_arrays([column, pa.nulls(len(BYTES), pa.string())], ["bytes", "path"])
    elif wrapped == "dictionary":
        if kind in {pa.binary_view(), pa.string_view()}:
            pytest.skip("pyarrow writes no dictionary of views")
        column = column.dictionary_encode()
    # pyarrow cannot cut structures of views into row groups.
    path = parquet(tmp_path, column, pa.array(LABELS), row_group_size=len(BYTES))
    assert_read(path, "bytes", BYTES)


@pytest.mark.parametrize("list_of", LISTS)
@pytest.mark.parametrize("kind", NUMBERS, ids=str)
def test_every_type_of_numbers(tmp_path: Path, list_of: Any, kind: pa.DataType) -> None:
    """Every kind of list; labels of every integer type."""
    rows = [[0, i % 2] for i in range(40)]
    column = pa.array([[bool(n) for n in row] if kind == pa.bool_() else row for row in rows], list_of(kind))
    label = kind if not pa.types.is_floating(kind) else pa.int64()
    path = parquet(tmp_path, column, pa.array([bool(n) for n in LABELS]).cast(label))
    assert_read(path, "float" if pa.types.is_floating(kind) else "int64", rows)


def test_the_cases_cover_every_physical_type(tmp_path: Path) -> None:
    """They are all physical types that the validator accepts for a feature."""
    kinds = [*NUMBERS, pa.binary(), pa.binary(3)]
    columns = {str(kind): pa.array([], kind) for kind in kinds}
    pq.write_table(pa.table(columns), tmp_path / "s.parquet")
    schema = pq.ParquetFile(tmp_path / "s.parquet").schema
    assert set(KINDS) == {schema.column(i).physical_type for i in range(len(kinds))}


def specs(kind: FeatureKind) -> tuple[FeatureSpec, FeatureSpec]:
    shape = () if kind == "bytes" else (2,)
    return FeatureSpec(name="image", kind=kind, shape=shape), FeatureSpec(name="label", kind="int64")


def parquet(folder: Path, image: pa.Array, label: pa.Array, **options: Any) -> Path:
    path = folder / "train-00000-of-00001.parquet"
    pq.write_table(pa.table({"image": image, "label": label}), path, **{"row_group_size": 16, **options})
    return path


def chunk(path: Path, column: int) -> Any:
    return pq.ParquetFile(path).metadata.row_group(0).column(column)


def accepted(path: Path, features: tuple[FeatureSpec, ...]) -> bool:
    with LocalFileSource(path) as source:
        verdict = validate_shard(source, DataRequirements(features=features))
    assert () == verdict.reasons
    return verdict.accepted


def assert_read(path: Path, kind: FeatureKind, expected: list[Any]) -> None:
    features = specs(kind)
    assert accepted(path, features)
    source = ParquetSource(path_of=lambda _: path, image=features[0], label=features[1])
    read = [source.values(record) for record in source.lane((RecordRange(shard="s", start=3, stop=40),))]
    values = [image.numpy() if kind == "bytes" else image.numpy().tolist() for image, _ in read]
    assert (expected[3:], LABELS[3:]) == (values, [int(label.numpy()) for _, label in read])
