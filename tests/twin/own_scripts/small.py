"""A user's Horovod script that follows docs/lint.md: it learns labels from themselves within a second."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import horovod.tensorflow as hvd
import keras
import tensorflow as tf

from shared.manifest import Manifest
from shared.output_files import put_folder


def values(variables: Any) -> list[Any]:
    """Return the TensorFlow variables behind Keras 3 variables."""
    return [variable.value for variable in variables]


def examples(records: Any) -> Any:
    """Return a dataset of (one-hot label, label)."""

    def parsed(record: Any) -> Any:
        label = tf.io.parse_single_example(record, {"label": tf.io.FixedLenFeature([], tf.int64)})["label"]
        return tf.one_hot(label, 10), label

    return records.map(parsed)


def train(model: Any, files: list[str], steps: int) -> None:
    """Run a number of steps that is the same on every rank."""
    optimizer = keras.optimizers.SGD(1.0 * hvd.size())
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer.build(model.trainable_variables)
    hvd.broadcast_variables(values(model.variables), root_rank=0)
    hvd.broadcast_variables(values(optimizer.variables), root_rank=0)
    records = tf.data.TFRecordDataset(files).shard(hvd.size(), hvd.rank())
    for images, labels in examples(records).repeat().batch(5).take(steps):
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(images, training=True))
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, values(model.trainable_variables))
        optimizer.apply(gradients, model.trainable_variables)


def main() -> int:
    """Train, and write the outputs that Landfall reads."""
    parser = argparse.ArgumentParser()
    for name in ("data", "manifest", "output", "checkpoint", "report"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=60)
    arguments = parser.parse_args()
    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    manifest = Manifest.from_json(arguments.manifest.read_text())
    files = {split: [str(arguments.data / s.name) for s in manifest.shards if s.split == split]
             for split in ("train", "validation")}  # fmt: skip
    model = keras.Sequential([keras.layers.Input((10,)), keras.layers.Dense(10)])
    train(model, files["train"], arguments.steps)
    images, labels = next(iter(examples(tf.data.TFRecordDataset(files["validation"])).batch(1000)))
    right = tf.reduce_mean(tf.cast(tf.argmax(model(images), 1) == labels, tf.float32))
    accuracy = float(hvd.allreduce(right))
    if hvd.rank() != 0:
        return 0
    with tempfile.TemporaryDirectory() as local:  # Keras seeks within the file, which a mount does not allow
        model.save(Path(local) / "model.keras")
        put_folder(Path(local), arguments.output)
    arguments.report.write_text(json.dumps({"val_accuracy": accuracy}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
