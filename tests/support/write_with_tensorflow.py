"""A program for .venv-training that writes shards with TensorFlow, and with tensorflow-datasets where installed.

    python -m tests.support.write_with_tensorflow FOLDER

Writes FOLDER/shards and FOLDER/pictures. Prints what the validator's own description of an example reads of one that
TensorFlow's description has read, both in this process.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from shard_validation.tfrecord.message import encode_example, example_class

SHARDS = {
    "train-00000-of-00003.tfrecord": "",
    "train-00001-of-00003.tfrecord.gz": "GZIP",
    "train-00002-of-00003": "ZLIB",
    "mnist-train.tfrecord-00000-of-00001": "",
}
PICTURES = {"train": 60, "test": 7}
"""Records of each split of the dataset."""


def main(folder: Path) -> None:
    """Write both, and print the examples that were read."""
    (folder / "shards").mkdir()
    for name, compression in SHARDS.items():
        options = tf.io.TFRecordOptions(compression_type=compression)
        with tf.io.TFRecordWriter(str(folder / "shards" / name), options) as writer:
            for i in range(30):
                writer.write(_example(i))
    if importlib.util.find_spec("tensorflow_datasets"):
        _write_pictures(folder)
    sys.stdout.write(f"{json.dumps(_read_by_both())}\n")


def _example(i: int) -> bytes:
    image = tf.cast(tf.random.uniform((20 + i, 30, 3), 0, 255, tf.int32), tf.uint8)
    features = {
        "jpeg": _bytes(tf.io.encode_jpeg(image).numpy()),
        "png": _bytes(tf.io.encode_png(image).numpy()),
        "raw": _bytes(image[:4, :4].numpy().tobytes()),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[i % 10])),
        "box": tf.train.Feature(float_list=tf.train.FloatList(value=[0.25, 0.5, 0.75, 1.0])),
        "text": _bytes("café".encode()),
        "boxes": tf.train.Feature(float_list=tf.train.FloatList(value=[])),
        "negative": tf.train.Feature(int64_list=tf.train.Int64List(value=[-1, -(2**63)])),
    }
    content: bytes = tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
    return content


def _bytes(value: bytes) -> Any:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


def _read_by_both() -> list[Any]:
    theirs = tf.train.Example.FromString(encode_example({"label": [1, 2], "x": 0.5, "text": "a"}))
    values = example_class().FromString(theirs.SerializeToString()).features.feature
    text = values["text"].bytes_list.value[0].decode()
    return [list(values["label"].int64_list.value), values["x"].float_list.value[0], text]


def _write_pictures(folder: Path) -> None:
    """Write a dataset in three shards for each split, without network access."""
    import tensorflow_datasets as tfds

    class Pictures(tfds.core.GeneratorBasedBuilder):  # type: ignore[misc] # untyped where this is checked
        """All types of features that tensorflow-datasets has for images, labels, texts and numbers."""

        VERSION = tfds.core.Version("1.0.0")

        def _info(self) -> tfds.core.DatasetInfo:
            features = {
                "image": tfds.features.Image(shape=(None, 30, 3), encoding_format="jpeg"),
                "mask": tfds.features.Image(shape=(8, 8, 1), encoding_format="png"),
                "label": tfds.features.ClassLabel(num_classes=10),
                "text": tfds.features.Text(),
                "box": tfds.features.BBoxFeature(),
                "tensor": tfds.features.Tensor(shape=(2, 3), dtype=np.float32),
                "count": tfds.features.Scalar(dtype=np.int64),
                "tags": tfds.features.Sequence(tfds.features.Text()),
            }
            return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

        def _split_generators(self, _: Any) -> dict[str, Iterator[tuple[str, dict[str, Any]]]]:
            return {split: self._generate_examples(count) for split, count in PICTURES.items()}

        def _generate_examples(self, count: int) -> Iterator[tuple[str, dict[str, Any]]]:
            chance = np.random.default_rng(count)
            for i in range(count):
                yield f"{i:03d}", _picture(chance, i) | {"box": tfds.features.BBox(0.1, 0.2, 0.5, 1.0)}

    tfds.core.utils.gcs_utils._is_gcs_disabled = True  # there is no public option
    builder = Pictures(data_dir=folder)
    builder.download_and_prepare(download_config=tfds.download.DownloadConfig(num_shards=3))


def _picture(chance: np.random.Generator, i: int) -> dict[str, Any]:
    return {
        "image": chance.integers(0, 256, (20 + i % 5, 30, 3), dtype=np.uint8),
        "mask": chance.integers(0, 256, (8, 8, 1), dtype=np.uint8),
        "label": i % 10,
        "text": f"café {i}",
        "tensor": chance.random((2, 3), dtype=np.float32),
        "count": -i,
        "tags": ["a"] * (i % 3),
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
