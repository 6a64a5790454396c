"""Run in .venv-training: write a small data set with tensorflow-datasets into a folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

COUNTS = {"train": 60, "test": 7}


class Pictures(tfds.core.GeneratorBasedBuilder):  # type: ignore[misc] # untyped where this is checked
    """Features of all kinds that tensorflow-datasets has for images, labels, texts and numbers."""

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
        return {split: self._generate_examples(count) for split, count in COUNTS.items()}

    def _generate_examples(self, count: int) -> Iterator[tuple[str, dict[str, Any]]]:
        chance = np.random.default_rng(count)
        for i in range(count):
            example = {
                "image": chance.integers(0, 256, (20 + i % 5, 30, 3), dtype=np.uint8),
                "mask": chance.integers(0, 256, (8, 8, 1), dtype=np.uint8),
                "label": i % 10,
                "text": f"café {i}",
                "box": tfds.features.BBox(ymin=0.1, xmin=0.2, ymax=0.5, xmax=1.0),
                "tensor": chance.random((2, 3), dtype=np.float32),
                "count": -i,
                "tags": ["a"] * (i % 3),
            }
            yield f"{i:03d}", example


def main() -> None:
    """Write it, in three shards for each split, without asking anybody on the network."""
    tfds.core.utils.gcs_utils._is_gcs_disabled = True  # there is no public switch
    builder = Pictures(data_dir=sys.argv[1])
    builder.download_and_prepare(download_config=tfds.download.DownloadConfig(num_shards=3))


if __name__ == "__main__":
    main()
