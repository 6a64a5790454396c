"""Small sources for `landfall pack` in their original formats, and a reader of what it writes."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shard_validation.tfrecord.message import example_class
from shared.record_framing import FRAME_OVERHEAD_BYTES, HEADER_BYTES
from tests.support.shards import image_bytes


def records(shard: Path) -> list[Any]:
    """Return the examples of a shard as dictionaries of their first values."""
    content, found = shard.read_bytes(), []
    while content:
        length = int.from_bytes(content[:8], "little")
        features = example_class().FromString(content[HEADER_BYTES : HEADER_BYTES + length]).features.feature
        found.append({name: getattr(features[name], features[name].WhichOneof("kind")).value[0] for name in features})
        content = content[length + FRAME_OVERHEAD_BYTES :]
    return found


def write_images(folder: Path, *, num_images: int = 12, classes: tuple[str, ...] = ("cat", "dog")) -> Path:
    """Write images into a folder for each class; return the folder of the classes."""
    for name in classes:
        (folder / name).mkdir(parents=True)
        for i in range(num_images):
            image_format, suffix = (("JPEG", "JPEG"), ("PNG", "png"))[i % 2]
            (folder / name / f"{i}.{suffix}").write_bytes(image_bytes(image_format, (8 + i, 8)))
    (folder / classes[0] / "notes.txt").write_text("not an image")
    return folder


def cifar_batch(seed: int, size: int = 20) -> dict[bytes, Any]:
    """Return the content of a CIFAR-10 batch."""
    generator = np.random.default_rng(seed)
    data = generator.integers(0, 256, (size, 3072), dtype=np.uint8)
    return {b"data": data, b"labels": [int(n) for n in generator.integers(0, 10, size)], b"batch_label": b"batch"}


def write_cifar(folder: Path) -> Path:
    """Write CIFAR-10's python batches, pickled as Python 2 did."""
    folder.mkdir()
    for i, name in enumerate([*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]):
        (folder / name).write_bytes(pickle.dumps(cifar_batch(i), protocol=2))
    (folder / "batches.meta").write_bytes(pickle.dumps({b"label_names": [b"airplane"] * 10}, protocol=2))
    return folder


def write_imagenet(folder: Path) -> Path:
    """Write ImageNet's layout with three synsets, and a label for each validation image."""
    write_images(folder / "train", classes=("n01440764", "n01443537", "n01484850"))
    (folder / "val").mkdir()
    for i in range(6):
        (folder / "val" / f"ILSVRC2012_val_{i:08d}.JPEG").write_bytes(image_bytes("JPEG", (10 + i, 10)))
    synsets = ["n01440764 tench, Tinca tinca", "n01443537 goldfish", "n01484850 great white shark"]
    (folder / "synsets.txt").write_text("\n".join(synsets))
    (folder / "labels.txt").write_text("".join(f"{synsets[i % 3][:9]}\n" for i in range(6)))
    return folder


def write_table(folder: Path) -> Path:
    """Write a Parquet table of numbers, texts and lists."""
    folder.mkdir()
    rows = {"kind": ["a", "b"] * 20, "x": [i / 2 for i in range(40)], "boxes": [[1, 2]] * 40, "id": list(range(40))}
    pq.write_table(pa.table(rows), folder / "table.parquet")
    return folder / "table.parquet"
