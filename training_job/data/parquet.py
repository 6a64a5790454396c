"""Parquet shards: one row is one example, one column one feature."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow as tf

from shared.manifest import FeatureSpec
from training_job.data.misfits import RecordFacts
from training_job.errors import DataError
from training_job.rank_plan import Lane, RecordRange

ROWS_PER_READ = 256


@dataclass(frozen=True, kw_only=True)
class ParquetSource:
    """Records are pairs of the image column's value and the label column's."""

    path_of: Callable[[str], Path]
    """Maps a shard's name to its file, in the data folder or in a cache."""
    image: FeatureSpec
    label: FeatureSpec

    def lane(self, lane: Lane, *, in_order: bool = False) -> tf.data.Dataset:
        """Return the lane's rows, always in order."""
        del in_order
        bytes_image = self.image.kind == "bytes"
        dtype = tf.string if bytes_image else tf.float32 if self.image.kind == "float" else tf.int64
        signature = (tf.TensorSpec([] if bytes_image else [None], dtype), tf.TensorSpec([], tf.int64))
        return tf.data.Dataset.from_generator(lambda: self._rows(lane), output_signature=signature)

    def values(self, record: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the pair as it is."""
        image, label = record
        return image, label

    def facts(self, shard: str) -> Iterator[RecordFacts]:
        """See RecordSource. An absent column is missing in every row, and is reported for the first row."""
        path = self.path_of(shard)
        try:
            yield from self._facts(path)
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"Shard {path} cannot be read as Parquet: {error}.") from error

    def _facts(self, path: Path) -> Iterator[RecordFacts]:
        with pq.ParquetFile(path) as file:
            names = tuple(file.schema_arrow.names)
            if self.image.name not in names or self.label.name not in names:
                label = 0 if self.label.name in names else None
                yield RecordFacts(label=label, has_image=self.image.name in names, names=names)
                return
            for batch in file.iter_batches(batch_size=ROWS_PER_READ, columns=[self.image.name, self.label.name]):
                images = batch.column(self.image.name).is_valid().to_pylist()
                for has_image, label in zip(images, _plain(batch.column(self.label.name)), strict=True):
                    is_label = isinstance(label, int)
                    yield RecordFacts(label=label if is_label else None, has_image=has_image, names=names)

    def _rows(self, lane: Lane) -> Iterator[tuple[Any, int]]:
        for part in lane:
            for batch in _batches(self.path_of(part.shard), part, [self.image.name, self.label.name]):
                images, labels = (_plain(batch.column(i)) for i in range(2))
                yield from zip(images, labels, strict=True)


def _batches(path: Path, part: RecordRange, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield the range's rows, without reading row groups outside of it."""
    try:
        with pq.ParquetFile(path) as file:
            first = 0
            for group in range(file.num_row_groups):
                after = first + file.metadata.row_group(group).num_rows
                if max(first, part.start) < min(after, part.stop):
                    yield from _of_group(file, group, columns, part.start - first, part.stop - first)
                first = after
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"Shard {path} cannot be read as Parquet with the columns {columns}: {error}.") from error


def _of_group(
    file: pq.ParquetFile, group: int, columns: list[str], start: int, stop: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows ``start`` ≤ i < ``stop`` of one row group; both may be outside of it."""
    first = 0
    for batch in file.iter_batches(batch_size=ROWS_PER_READ, row_groups=[group], columns=_physical(file, columns)):
        after = first + batch.num_rows
        low, high = max(first, start), min(after, stop)
        if low < high:
            yield batch.select(columns).slice(low - first, high - low)
        first = after


def _physical(file: pq.ParquetFile, columns: list[str]) -> list[str]:
    missing = [name for name in columns if name not in file.schema_arrow.names]
    if missing:
        raise pa.ArrowKeyError(f"columns {missing} are not among {file.schema_arrow.names}")
    return columns


def _plain(column: pa.Array) -> list[Any]:
    """Return Python values; Hugging Face's images are structs of bytes and path, of which the bytes are used."""
    kinds = pa.types
    if kinds.is_struct(column.type):
        column = column.field("bytes")
    if kinds.is_dictionary(column.type):
        column = column.dictionary_decode()
    if kinds.is_nested(column.type):  # a list of some kind
        return [np.asarray(value.values).ravel() for value in column]
    values: list[Any] = column.to_pylist()
    return values
