"""Small closed dataset versions: shards and a manifest in a folder."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray
from PIL import Image

from shared.job_arguments import JobArguments
from shared.manifest import FeatureSpec, Manifest, ManifestShard, fingerprint
from shared.record_framing import frame_record
from tests.support.example_bytes import example_bytes

DIGITS_FEATURES = (
    FeatureSpec(name="image", kind="bytes", shape=(8, 8, 1), encoding="png"),
    FeatureSpec(name="label", kind="int64", minimum=0, maximum=9),
)


@dataclass(frozen=True, kw_only=True)
class ClosedVersion:
    """A closed dataset version on this machine's disk."""

    folder: Path
    manifest: Path


def write_version(
    folder: Path, shards: Mapping[str, Sequence[Sequence[bytes]]], features: tuple[FeatureSpec, ...]
) -> ClosedVersion:
    """Write split → shard → payloads as TFRecord shards with their manifest."""
    data = folder / "data"
    data.mkdir(parents=True)
    facts = [
        _write(data, split, index, len(of_split), payloads)
        for split, of_split in shards.items()
        for index, payloads in enumerate(of_split)
    ]
    manifest = Manifest(
        dataset=folder.name,
        version="v1",
        generation=1,
        fingerprint=fingerprint(facts),
        data_format="tfrecord",
        features=features,
        shards=tuple(sorted(facts)),
    )
    (folder / "manifest.json").write_text(manifest.to_json())
    return ClosedVersion(folder=data, manifest=folder / "manifest.json")


def write_digits(
    folder: Path,
    *,
    train_shards: int = 8,
    limit: int | None = None,
    uneven_at: int | None = None,
    label_shift: int = 0,
) -> ClosedVersion:
    """Write scikit-learn's 1,797 digits: 80 % training, 20 % validation, PNG of 8 x 8 pixels, values 0 to 255."""
    from sklearn.datasets import load_digits  # only .venv has it, and other tests also write versions

    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))[:limit]
    payloads = [
        example_bytes({"image": _png(digits.images[i]), "label": (int(digits.target[i]) + label_shift) % 10})
        for i in order
    ]
    cut = len(payloads) * 4 // 5
    train = split_evenly(payloads[:cut], train_shards)
    if uneven_at:
        train = [payloads[:uneven_at], payloads[uneven_at:cut]]
    return write_version(
        folder,
        {"train": train, "validation": split_evenly(payloads[cut:], 2)},
        DIGITS_FEATURES,
    )


def split_evenly(payloads: Sequence[bytes], parts: int) -> list[Sequence[bytes]]:
    """Split a sequence into parts whose lengths differ by at most one."""
    bounds = [part * len(payloads) // parts for part in range(parts + 1)]
    return [payloads[start:stop] for start, stop in pairwise(bounds)]


def _png(image: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.minimum(255, image * 16).astype(np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def _write(folder: Path, split: str, index: int, num_shards: int, payloads: Sequence[bytes]) -> ManifestShard:
    name = f"{split}-{index:05d}-of-{num_shards:05d}.tfrecord"
    content = b"".join(map(frame_record, payloads))
    (folder / name).write_bytes(content)
    return ManifestShard(
        split=split,
        index=index,
        num_shards=num_shards,
        name=name,
        size_bytes=len(content),
        crc32c=f"{crc32c(content):08x}",
        num_records=len(payloads),
    )


def job_arguments(version: ClosedVersion, output: Path, **options: object) -> JobArguments:
    """Return the arguments of a training of this version, with outputs in one folder and without costly extras."""
    where = {
        "manifest": str(version.manifest),
        "data": str(version.folder),
        "report": str(output / "report"),
        "model": str(output / "model"),
        "checkpoints": str(output / "checkpoints"),
    }
    lean = {"measure_communication": False, "tensorboard": False}
    return JobArguments(**{**where, **lean, **options})  # type: ignore[arg-type]
