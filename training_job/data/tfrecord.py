"""TFRecord shards, plain or GZIP, of ``tf.train.Example``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf.message import DecodeError

from shared.manifest import FeatureSpec
from shared.record_framing import compression_of_file
from training_job.data.misfits import RecordFacts
from training_job.errors import DataError
from training_job.rank_plan import Lane

READ_BUFFER_BYTES = 1 << 20
SHARDS_AT_A_TIME = 8
RECORDS_IN_TURN = 16


@dataclass(frozen=True, kw_only=True)
class TfrecordSource:
    """Records are serialized examples, strings."""

    path_of: Callable[[str], Path]
    """Maps a shard's name to its file, in the data folder or in a cache."""
    image: FeatureSpec
    label: FeatureSpec

    def lane(self, lane: Lane, *, in_order: bool = False) -> tf.data.Dataset:
        """Return the lane's payloads.

        Without ``in_order``, a few from each of several shards in turn: a first, deterministic shuffle.
        """
        paths = [self.path_of(part.shard) for part in lane]
        ranges = (
            tf.constant([str(path) for path in paths], tf.string),
            tf.constant([_compression(path) for path in paths], tf.string),
            tf.constant([part.start for part in lane], tf.int64),
            tf.constant([part.stop for part in lane], tf.int64),
        )
        return tf.data.Dataset.from_tensor_slices(ranges).interleave(
            _records,
            cycle_length=1 if in_order else SHARDS_AT_A_TIME,
            block_length=RECORDS_IN_TURN,
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )

    def values(self, record: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Parse one example."""
        parsed = {
            self.image.name: _parsing(self.image),
            self.label.name: tf.io.FixedLenFeature([], tf.int64),
        }
        example = tf.io.parse_single_example(record, parsed)
        return example[self.image.name], example[self.label.name]

    def facts(self, shard: str) -> Iterator[RecordFacts]:
        """See RecordSource. An example without a map of features has none."""
        path = self.path_of(shard)
        try:
            yield from self._facts(path)
        except (OSError, tf.errors.OpError, DecodeError) as error:
            raise DataError(f"Shard {path} cannot be read as TFRecord: {error}.") from error

    def _facts(self, path: Path) -> Iterator[RecordFacts]:
        for payload in tf.data.TFRecordDataset(str(path), _compression(path), READ_BUFFER_BYTES).as_numpy_iterator():
            features = tf.train.Example.FromString(payload).features.feature
            names = tuple(features)
            labels: Sequence[int] = features[self.label.name].int64_list.value if self.label.name in names else ()
            kind = features[self.image.name].WhichOneof("kind") if self.image.name in names else None
            yield RecordFacts(
                label=labels[0] if len(labels) == 1 else None,
                has_image=kind == f"{self.image.kind}_list",
                names=names,
            )


def _records(path: tf.Tensor, compression: tf.Tensor, start: tf.Tensor, stop: tf.Tensor) -> tf.data.Dataset:
    return tf.data.TFRecordDataset(path, compression, READ_BUFFER_BYTES).skip(start).take(stop - start)


@cache
def _compression(path: Path) -> str:
    return compression_of_file(path).upper()


def _parsing(spec: FeatureSpec) -> tf.io.FixedLenFeature:
    if spec.kind == "bytes":
        return tf.io.FixedLenFeature([], tf.string)
    return tf.io.FixedLenFeature(spec.shape, tf.float32 if spec.kind == "float" else tf.int64)
