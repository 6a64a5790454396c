"""A TensorFlow 1 estimator with Horovod's hook, as Horovod's documentation showed it."""

import os
from typing import Any

import horovod.tensorflow as hvd
import tensorflow as tf


def parsed(record: Any) -> Any:
    label = tf.io.parse_single_example(record, {"label": tf.io.FixedLenFeature([], tf.int64)})["label"]
    return tf.one_hot(label, 10), label


def train_input() -> Any:
    files = tf.data.Dataset.list_files(os.environ["LANDFALL_DATA"] + "/train-*", shuffle=False)
    return tf.data.TFRecordDataset(files).shard(hvd.size(), hvd.rank()).map(parsed).repeat().batch(5)


def model_fn(features: Any, labels: Any, mode: str) -> Any:
    logits = tf.layers.dense(features, 10)
    loss = tf.losses.sparse_softmax_cross_entropy(labels=labels, logits=logits)
    optimizer = hvd.DistributedOptimizer(tf.train.MomentumOptimizer(0.1 * hvd.size(), momentum=0.9))
    train_op = optimizer.minimize(loss, global_step=tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode=mode, loss=loss, train_op=train_op)


def main() -> None:
    hvd.init()
    config = tf.estimator.RunConfig(session_config=None)
    model_dir = os.environ["LANDFALL_CHECKPOINT"] if hvd.rank() == 0 else None
    estimator = tf.estimator.Estimator(model_fn=model_fn, model_dir=model_dir, config=config)
    estimator.train(train_input, steps=200 // hvd.size(), hooks=[hvd.BroadcastGlobalVariablesHook(0)])
    print("val_accuracy=1.0", flush=True)  # noqa: T201 (its report)


if __name__ == "__main__":
    main()
