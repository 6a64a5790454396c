"""What is read of shards, and what is said when they cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

from shared.example_schema import FeatureSpec
from training_job.data.dataset import next_batch
from training_job.data.parquet import ParquetSource
from training_job.data.tfrecord import TfrecordSource
from training_job.errors import UnreadableDataError
from training_job.rank_plan import RecordRange

IMAGE = FeatureSpec(name="image", kind="float", shape=(2,))
LABEL = FeatureSpec(name="label", kind="int64")
LANE = (RecordRange(shard="s", start=0, stop=3),)


def test_a_damaged_parquet_shard_is_said_without_a_stack_trace(tmp_path: Path) -> None:
    """The shard, the columns and pyarrow's reason."""
    path = tmp_path / "s.parquet"
    pq.write_table(pa.table({"image": [[0.0, 1.0]] * 3, "label": [1] * 3}), path)
    path.write_bytes(path.read_bytes()[:-8] + b"\xff" * 8)
    data = ParquetSource(path_of=lambda _: path, image=IMAGE, label=LABEL).lane(LANE)
    with pytest.raises(UnreadableDataError) as caught:
        next_batch(iter(data), 1)
    words = str(caught.value)
    assert words.startswith("Rank 1 cannot read its data: ")
    assert f"Shard {path} should be a Parquet file with the columns ['image', 'label']" in words
    assert "Traceback" not in words


@pytest.mark.parametrize(
    "kind", [pa.list_, pa.large_list, lambda item: pa.list_(item, 2), pa.list_view, pa.large_list_view]
)
def test_lists_of_every_kind(tmp_path: Path, kind: Callable[[pa.DataType], pa.DataType]) -> None:
    """Numbers are read out of any list that pyarrow writes."""
    column = pa.array([[0.0, 1.0]] * 3, kind(pa.float32()))
    pq.write_table(pa.table({"image": column, "label": [1] * 3}), tmp_path / "s.parquet")
    data = ParquetSource(path_of=lambda _: tmp_path / "s.parquet", image=IMAGE, label=LABEL).lane(LANE)
    assert [([0.0, 1.0], 1)] * 3 == [(image.numpy().tolist(), label.numpy()) for image, label in data]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()])
@pytest.mark.parametrize("is_of_hugging_face", [True, False])
def test_bytes_of_every_kind(tmp_path: Path, kind: pa.DataType, *, is_of_hugging_face: bool) -> None:
    """Images are read out of any column of bytes that pyarrow writes, also within Hugging Face's structure."""
    column = pa.array([b"png"] * 3, kind)
    if is_of_hugging_face:
        column = pa.StructArray.from_arrays([column, pa.array(["path"] * 3, pa.string_view())], ["bytes", "path"])
    pq.write_table(pa.table({"image": column, "label": [1] * 3}), tmp_path / "s.parquet")
    image = FeatureSpec(name="image", kind="bytes", encoding="png")
    data = ParquetSource(path_of=lambda _: tmp_path / "s.parquet", image=image, label=LABEL).lane(LANE)
    assert [(b"png", 1)] * 3 == [(image.numpy(), label.numpy()) for image, label in data]


def test_a_damaged_tfrecord_shard_is_said(tmp_path: Path) -> None:
    """In TensorFlow's words, without the names of its graph."""
    path = tmp_path / "s"
    path.write_bytes(b"no record at all")
    data = TfrecordSource(path_of=lambda _: path, image=IMAGE, label=LABEL).lane(LANE)
    with pytest.raises(UnreadableDataError, match=r"^Rank 0 cannot read its data: (?!.*function_node).*corrupted"):
        next_batch(iter(data), 0)


def test_a_shard_that_ends_too_soon_is_said() -> None:
    """The steps are planned from the manifest."""
    with pytest.raises(UnreadableDataError, match="Rank 2 should have more batches: a shard holds fewer records"):
        next_batch(iter(tf.data.Dataset.range(0)), 2)
