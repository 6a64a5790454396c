"""Parquet files as their writers make them: all of them are accepted, with the values read right."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shard_validation import (
    DataRequirements,
    Limits,
    Paused,
    Reason,
    ReasonCode,
    ShardVerdict,
    validate_shard,
    validate_shard_within,
)
from shared.manifest import FeatureSpec
from tests.support.shards import BytesSource, image_bytes

NAME = "train-00000-of-00001.parquet"
TEXTS = [None if i % 7 == 3 else f"text {i % 50}" for i in range(2500)]
"""Enough rows for several bit-packed groups and runs, with rows that have no value."""
TEXT = FeatureSpec(name="text", kind="bytes", encoding="text", required=False)


def written(columns: Any, **options: Any) -> BytesSource:
    """Return a shard of these columns."""
    buffer = io.BytesIO()
    pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), buffer, **options)
    return BytesSource(buffer.getvalue(), NAME, 1 << 14)


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd", "brotli", "lz4"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("use_dictionary", [True, False])
def test_texts(compression: str, version: str, use_dictionary: bool) -> None:  # noqa: FBT001
    """Texts with gaps are read in every compression, page version and encoding."""
    source = written(
        {"text": TEXTS},
        compression=compression,
        data_page_version=version,
        use_dictionary=use_dictionary,
        data_page_size=2000,
        row_group_size=1000,
    )
    verdict = validate_shard(source, DataRequirements(features=(TEXT,)))
    assert () == verdict.reasons
    expected = {text: TEXTS.count(text) for text in TEXTS if text is not None}
    assert expected == verdict.statistics.features["text"].histogram


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY", "PLAIN"])
def test_other_encodings(encoding: str) -> None:
    """Delta encodings are read too."""
    source = written({"text": TEXTS}, use_dictionary=False, column_encoding={"text": encoding})
    verdict = validate_shard(source, DataRequirements(features=(TEXT,)))
    assert (True, len(TEXTS)) == (verdict.accepted, verdict.num_records)
    assert 50 == len(verdict.statistics.features["text"].histogram)


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd", "brotli"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("use_dictionary", [True, False])
@pytest.mark.parametrize("are_optional", [True, False])
def test_pages_too_large_to_be_held(
    compression: str, version: str, *, use_dictionary: bool, are_optional: bool
) -> None:
    """They are read in pieces, dictionaries too; verdict and statistics equal those of pages that are held."""
    texts = [text if are_optional else text or "none" for text in TEXTS]
    kinds = pa.schema([pa.field("text", pa.string(), nullable=are_optional)])
    source = written(
        pa.table({"text": texts}, schema=kinds),
        compression=compression,
        data_page_version=version,
        use_dictionary=use_dictionary,
        row_group_size=2000,
        data_page_size=150 if use_dictionary else 1 << 20,
        write_batch_size=50 if use_dictionary else 1024,
    )
    spec = FeatureSpec(name="text", kind="bytes", encoding="text", allowed=tuple(f"text {i}" for i in range(1, 50)))
    expected, streamed = (
        validate_shard(
            source, DataRequirements(features=(spec,), limits=Limits(max_page_bytes=size, max_reasons=5000))
        )
        for size in (1 << 20, 400 if use_dictionary else 5000)
    )
    assert sorted(map(record_index, expected.reasons)) == sorted(map(record_index, streamed.reasons))
    assert (expected.num_records, expected.statistics) == (streamed.num_records, streamed.statistics)
    assert expected.num_reasons > 40


def record_index(reason: Reason) -> tuple[int, str]:
    """Return the record and the code of a reason."""
    return reason.record_index or 0, str(reason.code)


def test_dictionary_that_falls_back() -> None:
    """A column that falls back from a dictionary to plain values within one row group is read."""
    values = [f"{i:06d}" * 20 for i in range(3000)]
    source = written({"text": values}, dictionary_pagesize_limit=20_000, data_page_size=10_000, write_batch_size=100)
    verdict = validate_shard(source, DataRequirements(features=(TEXT,)))
    assert (True, 3000) == (verdict.accepted, verdict.statistics.features["text"].num_present)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(pa.array([None] * 1000, pa.string()), id="no value at all"),
        pytest.param(pa.array(["same"] * 1000), id="one value"),
        pytest.param(pa.array([b""] * 1000), id="empty values"),
        pytest.param(pa.array(["large"] * 10, pa.large_string()), id="large strings"),
        pytest.param(pa.array(["view", None] * 10, pa.string_view()), id="views"),
        pytest.param(pa.array([b"view", None] * 10, pa.binary_view()), id="views of bytes"),
        pytest.param(pa.array([f"{i}" for i in range(300)]).dictionary_encode(), id="dictionary"),
    ],
)
@pytest.mark.parametrize("compression", ["lz4", "snappy"])
def test_unusual_texts(values: pa.Array, compression: str) -> None:
    """Columns without values, of one value and of empty values are read."""
    source = written({"text": values}, compression=compression)
    assert () == validate_shard(source, DataRequirements(features=(TEXT,))).reasons


def test_numbers() -> None:
    """Integers, floats and booleans of every width are numbers; lists of them have a shape."""
    columns = {
        "a": pa.array(range(500), pa.int16()),
        "b": pa.array([0.5] * 500, pa.float32()),
        "c": pa.array([True, False] * 250),
        "d": pa.array([[1.0, 2.0]] * 500, pa.list_(pa.float64())),
        "e": pa.array([[1, 2, 3]] * 500, pa.list_(pa.int64(), 3)),
        "f": pa.array([[1, 2], [1]] * 250, pa.list_view(pa.int64())),
    }
    features = (
        FeatureSpec(name="a", kind="int64", maximum=499),
        FeatureSpec(name="b", kind="float"),
        FeatureSpec(name="c", kind="int64"),
        FeatureSpec(name="d", kind="float", shape=(2,), maximum=2),
        FeatureSpec(name="e", kind="int64", shape=(3,)),
        FeatureSpec(name="f", kind="int64", shape=(None,), maximum=2),
    )
    verdict = validate_shard(written(columns), DataRequirements(features=features))
    assert () == verdict.reasons
    assert [500] * 6 == [f.num_present for f in verdict.statistics.features.values()]


@pytest.mark.parametrize("compression", ["lz4", "snappy"])
@pytest.mark.parametrize(
    "values",
    [
        pytest.param(
            pa.array([["a", "b"], ["c"]] * 50, pa.large_list(pa.large_string())), id="as polars writes them"
        ),
        pytest.param(
            pa.array([["a", "b"], ["c"]] * 50, pa.list_(pa.dictionary(pa.int32(), pa.string()))), id="dictionary"
        ),
        pytest.param(pa.array([["a", "b"]] * 100, pa.list_(pa.string(), 2)), id="fixed size"),
        pytest.param(pa.array([["a", "b"], ["c"]] * 50, pa.list_(pa.string_view())), id="views"),
        pytest.param(pa.array([["a", "b"], ["c"]] * 50, pa.list_view(pa.string())), id="list views"),
        pytest.param(
            pa.array([[b"a", b"b"], [b"c"]] * 50, pa.large_list_view(pa.binary_view())), id="views of views"
        ),
        pytest.param(pa.array([["a", "b"], ["c"]] * 50).cast(pa.list_(pa.json_())), id="of another name"),
    ],
)
def test_lists_of_texts(values: pa.Array, compression: str) -> None:
    """Texts in lists of every kind are read as texts."""
    spec = FeatureSpec(name="tags", kind="bytes", encoding="text", shape=(None,), allowed=("a", "b", "c"))
    verdict = validate_shard(written({"tags": values}, compression=compression), DataRequirements(features=(spec,)))
    assert ((), 100) == (verdict.reasons, verdict.num_records)


def test_columns_that_are_not_features() -> None:
    """Columns of any type that are not features are read for integrity only."""
    columns = {
        "label": [1, 2],
        "when": [datetime(2026, 11, 20, tzinfo=UTC)] * 2,
        "price": pa.array([1, 2], pa.decimal128(10, 2)),
        "fixed": pa.array([b"abcd", b"efgh"], pa.binary(4)),
        "deep": [[["a"], ["b", "c"]], []],
        "map": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
        "none": pa.nulls(2),
    }
    verdict = validate_shard(written(columns), DataRequirements(features=(FeatureSpec(name="label", kind="int64"),)))
    assert (True, 2, ()) == (verdict.accepted, verdict.num_records, verdict.reasons)


def test_images_of_hugging_face() -> None:
    """The `image` column of Hugging Face's datasets is a struct of bytes and path: its bytes are the feature."""
    image = FeatureSpec(name="image", kind="bytes", encoding="image")
    rows = [{"bytes": image_bytes("JPEG"), "path": f"{i}.jpg"} for i in range(20)]
    source = written({"image": rows, "label": list(range(20))}, row_group_size=8)
    source.name = "train-00000-of-00001-0123456789abcdef.parquet"
    verdict = validate_shard(source, DataRequirements(data_format="parquet", features=(image,)))
    assert () == verdict.reasons
    assert {"16x12x3": 20} == verdict.statistics.features["image"].histogram


@pytest.mark.parametrize("column", ["text", "label"])
def test_a_row_group_that_takes_too_long_is_rejected(column: str) -> None:
    """A row group cannot pause: the one reason names it."""
    values = {"text": TEXTS, "label": list(range(len(TEXTS)))}[column]
    source = written({column: values, "more": values}, row_group_size=300)
    paused = validate_shard_within(source, should_pause=lambda: True)
    while isinstance(paused, Paused) and not paused.checkpoint["row_group"]:
        paused = validate_shard_within(source, should_pause=lambda: True, checkpoint=paused.checkpoint)
    assert isinstance(paused, Paused)
    outcome = validate_shard_within(source, out_of_time=lambda: True, checkpoint=paused.checkpoint)
    assert isinstance(outcome, ShardVerdict)
    (reason,) = outcome.reasons
    assert (ReasonCode.VALIDATION_TOO_LONG, "row group 1 of 300 rows") == (reason.code, reason.seen)


def test_pausing() -> None:
    """A validation in many executions ends with the same verdict as in one."""
    source = written({"text": TEXTS, "label": list(range(len(TEXTS)))}, row_group_size=300)
    requirements = DataRequirements(features=(TEXT, FeatureSpec(name="label", kind="int64", maximum=2000)))
    checkpoint, num_pauses = None, 0
    while True:
        outcome = validate_shard_within(source, requirements, should_pause=lambda: True, checkpoint=checkpoint)
        if not isinstance(outcome, Paused):
            break
        checkpoint, num_pauses = outcome.checkpoint, num_pauses + 1
    assert validate_shard(source, requirements) == outcome
    assert num_pauses >= 8


@pytest.mark.parametrize(
    "spec",
    [
        FeatureSpec(name="n", kind="float", maximum=-1.0),
        FeatureSpec(name="n", kind="float", minimum=0.1, maximum=0.7),
        FeatureSpec(name="n", kind="float", allowed=(0.5, 0.1)),
    ],
)
def test_more_faults_than_are_kept_are_counted(spec: FeatureSpec) -> None:
    """A wrong range in a pipeline makes every row wrong: all of them are counted, apart from the valid ones."""
    values = [i / 20 for i in range(20)] * 100
    verdict = validate_shard(written({"n": pa.array(values, pa.float32())}), DataRequirements(features=(spec,)))
    low, high = spec.minimum or 0, spec.maximum or 1
    exact = pa.array(values, pa.float32()).to_pylist()
    allowed = pa.array(spec.allowed, pa.float32()).to_pylist()
    sound = [v for v in exact if low <= v <= high and (not allowed or v in allowed)]
    assert (2000 - len(sound), 50) == (verdict.num_reasons, len(verdict.reasons))
    seen = verdict.statistics.features["n"]
    assert (len(sound), min(sound, default=None), max(sound, default=None)) == (
        seen.num_present,
        seen.minimum,
        seen.maximum,
    )
