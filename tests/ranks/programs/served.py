"""Scores a version's validation images with the script in docs/serving.md, as both kinds of endpoints call it."""

from __future__ import annotations

import base64
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import tensorflow as tf

from training_job.data.images import fit

_FEATURES = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}


def main(data: Path, scratch: Path) -> None:
    """Print what a test compares: single requests' accuracy, whether files score the same, and the error messages."""
    score = importlib.import_module("score")  # written by the test
    score.init()
    records = [
        tf.io.parse_single_example(record, _FEATURES)
        for record in tf.data.TFRecordDataset(sorted(map(str, data.glob("validation-*"))))
    ]
    images, labels = [r["image"].numpy() for r in records], [int(r["label"]) for r in records]
    online: list[dict[str, Any]] = []
    for start in range(0, len(images), score.MAX_IMAGES):
        encoded = [base64.b64encode(image).decode() for image in images[start : start + score.MAX_IMAGES]]
        online += score.run(json.dumps({"images": encoded}))["predictions"]
    files = [scratch / f"{number}.png" for number in range(len(images))]
    for file, image in zip(files, images, strict=True):
        file.write_bytes(image)
    batch = [json.loads(line) for line in score.run([str(file) for file in files])]
    other = tf.random.stateless_uniform([30, 21, score.shape[-1]], [1, 2], maxval=255.0)
    sys.stdout.write(
        json.dumps(
            {
                "accuracy": sum(p["class"] == label for p, label in zip(online, labels, strict=True)) / len(labels),
                "batch_is_online": [{**p, "file": f.name} for p, f in zip(online, files, strict=True)] == batch,
                "centre_differs_by": float(tf.reduce_max(abs(score.centre(other) - fit(other, score.shape)))),
                "no_image": score.score(b"text"),
                "too_many": score.run(json.dumps({"images": ["", *["AA=="] * score.MAX_IMAGES]})),
            }
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
