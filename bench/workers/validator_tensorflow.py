"""TensorFlow's readers as a worker of the validator benchmark."""

from __future__ import annotations

import tensorflow as tf

from bench.workers.timed import serve

FEATURES = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}


def iterator(path: str) -> int:
    """Read with `tf_record_iterator`: both CRCs, one record at a time."""
    return sum(1 for _ in tf.compat.v1.io.tf_record_iterator(path))


def dataset(path: str, batch: int, buffer_bytes: int) -> int:
    """Read with tf.data, prefetched; a ``batch`` of 1 means no batches."""
    records = tf.data.TFRecordDataset([path], buffer_size=buffer_bytes)
    if batch > 1:
        records = records.batch(batch)
    return sum(int(tf.size(records_of_batch)) for records_of_batch in records.prefetch(tf.data.AUTOTUNE))


def parse(path: str, batch: int) -> int:
    """Read and parse batches with `tf.io.parse_example`, prefetched."""
    batches = tf.data.TFRecordDataset([path], buffer_size=8 << 20).batch(batch)
    parsed = batches.map(lambda records: tf.io.parse_example(records, FEATURES), num_parallel_calls=tf.data.AUTOTUNE)
    return sum(int(tf.size(examples["label"])) for examples in parsed.prefetch(tf.data.AUTOTUNE))


if __name__ == "__main__":
    tf.get_logger().setLevel("ERROR")
    serve({"iterator": iterator, "dataset": dataset, "parse": parse})
