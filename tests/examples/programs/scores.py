"""Score X-rays with an exported model: `python scores.py model.keras shard…` prints labels and scores as JSON.

It shares no code with the training: it is what the report's AUC is compared with.
"""

from __future__ import annotations

import json
import sys

import keras
import tensorflow as tf

STORED, KEPT = 256, 224
"""Pixels of the stored side, and of the centre that evaluation looks at: seven eighths."""


def images_and_labels(shards: list[str], side: int) -> tuple[tf.Tensor, list[int]]:
    """Read all records: images, float32 [N, side, side, 1], and labels."""
    wanted = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    images, labels = [], []
    margin = (STORED - KEPT) // 2
    for record in tf.data.TFRecordDataset(shards):
        example = tf.io.parse_single_example(record, wanted)
        pixels = tf.cast(tf.io.decode_png(example["image"]), tf.float32)
        centre = pixels[margin : margin + KEPT, margin : margin + KEPT]
        images.append(tf.image.resize(centre, [side, side], antialias=True))
        labels.append(int(example["label"]))
    return tf.stack(images), labels


def main(model_path: str, *shards: str) -> None:
    """Print the scores."""
    model = keras.saving.load_model(model_path, compile=False)
    images, labels = images_and_labels(list(shards), model.input_shape[1])
    scores = [float(score) for score in tf.sigmoid(model(images, training=False))[:, 0]]
    print(json.dumps({"labels": labels, "scores": scores}))  # noqa: T201 (read by the test)


if __name__ == "__main__":
    main(*sys.argv[1:])
