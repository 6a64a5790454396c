"""Real handwritten digits as a dataset version: scikit-learn's 1,797 images, PNG and label, in TFRecord shards."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from shard_validation.tfrecord.message import encode_example
from shared.record_framing import frame_record

NUM_TRAIN_SHARDS = 8
NUM_VALIDATION_SHARDS = 2
NUM_VALIDATION = 360
"""A fifth of the 1,797 images."""
SEED = 20261120
_BRIGHTEST = 16
"""The data set's grey levels are 0 to 16 (scikit-learn, load_digits)."""


@dataclass(frozen=True)
class Digits:
    """Images as uint8 (n, 8, 8), 0 is black; labels as int64 (n,), 0 to 9."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: NDArray[np.int64]) -> Digits:
        """Return the images at the indices, in the order of the indices."""
        return Digits(self.images[indices], self.labels[indices])


def load_digits() -> Digits:
    """Return all 1,797 images in scikit-learn's order."""
    from sklearn.datasets import load_digits as load

    bunch = load()
    images = np.rint(bunch.images * (255 / _BRIGHTEST)).astype(np.uint8)
    return Digits(images, bunch.target.astype(np.int64))


def split(digits: Digits, *, num_validation: int = NUM_VALIDATION, seed: int = SEED) -> tuple[Digits, Digits]:
    """Return (train, validation), shuffled by a fixed seed; each digit has the same share in both."""
    order = np.random.default_rng(seed).permutation(len(digits))
    by_label = order[np.argsort(digits.labels[order], kind="stable")]
    # Evenly spaced picks out of a list sorted by label take the same share of every label.
    picked = np.linspace(0, len(digits) - 1, num_validation).round().astype(np.int64)
    is_validation = np.zeros(len(digits), dtype=bool)
    is_validation[by_label[picked]] = True
    return digits.take(order[~is_validation[order]]), digits.take(order[is_validation[order]])


def write_shards(digits: Digits, folder: Path, *, split_name: str, num_shards: int) -> list[Path]:
    """Write one split's shards, whose sizes differ by one record at most; return their paths in order."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{split_name}-{i:05d}-of-{num_shards:05d}.tfrecord" for i in range(num_shards)]
    for path, part in zip(paths, np.array_split(np.arange(len(digits)), num_shards), strict=True):
        _write_shard(digits.take(part), path)
    return paths


def pack_digits(folder: Path) -> list[Path]:
    """Write the demo's ten shards; return their paths."""
    train, validation = split(load_digits())
    return [
        *write_shards(train, folder, split_name="train", num_shards=NUM_TRAIN_SHARDS),
        *write_shards(validation, folder, split_name="validation", num_shards=NUM_VALIDATION_SHARDS),
    ]


def encode_png(image: NDArray[np.uint8]) -> bytes:
    """Return a grey image (height, width) as PNG."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="PNG")
    return buffer.getvalue()


def _write_shard(digits: Digits, path: Path) -> None:
    with path.open("wb") as shard:
        for image, label in zip(digits.images, digits.labels, strict=True):
            shard.write(frame_record(encode_example({"image": encode_png(image), "label": int(label)})))
