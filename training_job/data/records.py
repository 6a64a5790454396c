"""Reading the records of a lane, in order."""

from __future__ import annotations

from functools import reduce
from pathlib import Path

import tensorflow as tf

from training_job.rank_plan import Lane, RecordRange

READ_BUFFER_BYTES = 1 << 20


def lane_records(folder: Path, lane: Lane) -> tf.data.Dataset:
    """Return the payloads of the lane's records as a dataset of strings."""
    parts = [_range_records(folder, part) for part in lane]
    if not parts:
        return tf.data.Dataset.from_tensor_slices(tf.constant([], tf.string))
    return reduce(lambda first, second: first.concatenate(second), parts)


def _range_records(folder: Path, part: RecordRange) -> tf.data.Dataset:
    records = tf.data.TFRecordDataset(str(folder / part.shard), buffer_size=READ_BUFFER_BYTES)
    return records.skip(part.start).take(part.stop - part.start)
