"""A script for TensorFlow's launcher: every worker trains and saves, as MultiWorkerMirroredStrategy requires."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import tensorflow as tf

from shared.manifest import Manifest
from shared.output_files import put_folder

BATCH = 10


def examples(files: list[str]) -> Any:
    """Return a dataset of (one-hot label, label)."""

    def parsed(record: Any) -> Any:
        label = tf.io.parse_single_example(record, {"label": tf.io.FixedLenFeature([], tf.int64)})["label"]
        return tf.one_hot(label, 10), label

    return tf.data.TFRecordDataset(files).map(parsed)


class Model(tf.Module):  # type: ignore[misc]  # TensorFlow has no types
    """One layer. Keras 3 does not support this strategy, so the training step is written out."""

    def __init__(self) -> None:
        self.weights = tf.Variable(tf.zeros((10, 10)))

    @tf.function(input_signature=[tf.TensorSpec([None, 10])])  # type: ignore[untyped-decorator]
    def logits(self, images: Any) -> Any:
        """Return the score of each label."""
        return tf.matmul(images, self.weights)


def train(strategy: Any, model: Model, files: list[str], steps: int) -> None:
    """Run a number of steps; each worker processes its share of every batch, and the gradients are summed."""

    def step(images: Any, labels: Any) -> None:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model.logits(images))
            loss = tf.reduce_sum(losses) / BATCH
        gradient = tape.gradient(loss, model.weights)
        total = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, gradient)
        model.weights.assign_sub(total)

    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    batches = examples(files).repeat().batch(BATCH).with_options(options)
    run = tf.function(lambda images, labels: strategy.run(step, args=(images, labels)))
    for number, (images, labels) in enumerate(strategy.experimental_distribute_dataset(batches)):
        if number == steps:
            break
        run(images, labels)


def main() -> int:
    """Train, and write the outputs that Landfall reads."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # reads TF_CONFIG and connects to the other workers
    data, output = Path(os.environ["LANDFALL_DATA"]), Path(os.environ["LANDFALL_OUTPUT"])
    manifest = Manifest.from_json(Path(os.environ["LANDFALL_MANIFEST"]).read_text(encoding="utf-8"))
    files = {split: [str(data / s.name) for s in manifest.shards if s.split == split]
             for split in ("train", "validation")}  # fmt: skip
    with strategy.scope():
        model = Model()
    train(strategy, model, files["train"], steps=60)
    weights = model.weights.numpy()
    seen = [(image.numpy(), int(label)) for image, label in examples(files["validation"])]
    correct = sum(int((image @ weights).argmax()) == label for image, label in seen)
    with tempfile.TemporaryDirectory() as local:  # TensorFlow renames files, which a mount does not allow
        tf.saved_model.save(model, f"{local}/saved_model")  # every worker has to save, otherwise the others wait
        task = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
        (Path(local) / f"written-by-{task}.txt").write_text(f"{strategy.num_replicas_in_sync} replicas")
        put_folder(Path(local), output)
    Path(os.environ["LANDFALL_REPORT"]).write_text(json.dumps({"val_accuracy": correct / len(seen)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
