"""The jobs that the training benchmarks run: arguments as the submitter would state them, data to go with them."""

from __future__ import annotations

import io
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shard_validation import encode_example
from shared.crc import crc32c_of_file
from shared.job_arguments import JobArguments
from shared.manifest import FeatureSpec, Manifest, ManifestShard, fingerprint
from shared.record_framing import frame_record

_SEED = 20261121
_ENDLESS_RECORDS = 10_000_000
"""For each epoch: none of these trainings comes to an end by itself."""
_IMAGE = FeatureSpec(name="image", kind="bytes", encoding="jpeg", shape=(None, None, 3))
_LABEL = FeatureSpec(name="label", kind="int64", minimum=0)
_LEAN: dict[str, Any] = {
    "optimizer": "sgd",
    "learning_rate": 0.001,
    "epochs": 1000,
    "num_classes": 1000,
    "stall_timeout_s": 86_400.0,  # a training that waits for its turn is stopped, for longer than any stall
}


def imaging(model: str, *, size: int, batch_size: int) -> dict[str, Any]:
    """Return the options of a model on square images; the batch is that of one process."""
    return {
        "model_name": model,
        "image_height": size,
        "image_width": size,
        "image_channels": 3,
        "per_process_batch_size": batch_size,
    }


def synthetic_job(folder: Path, **options: Any) -> JobArguments:
    """Return a job on random pixels, with its outputs in a folder of its own."""
    return _job(folder, (), synthetic_records=_ENDLESS_RECORDS, **options)


def jpeg_job(folder: Path, pictures: Sequence[bytes], *, num_records: int, **options: Any) -> JobArguments:
    """Write the pictures, repeated, into one shard for training and one for validation, and return the job."""
    shards = [_shard(folder, pictures, "train", num_records), _shard(folder, pictures, "validation", len(pictures))]
    return _job(folder, shards, **options)


def pictures(number: int, *, width: int, height: int, quality: int) -> list[bytes]:
    """Return JPEGs of noise in several octaves: as smooth and as detailed as photographs are."""
    chance = random.Random(_SEED)  # noqa: S311 - pixels
    return [_picture(chance, width, height, quality) for _ in range(number)]


def _picture(chance: random.Random, width: int, height: int, quality: int) -> bytes:
    from PIL import Image

    picture = Image.new("RGB", (width, height), (128, 128, 128))
    cells = max(width, height)
    while cells > 1:
        size = (max(1, width // cells), max(1, height // cells))
        noise = Image.frombytes("RGB", size, chance.randbytes(3 * size[0] * size[1]))
        smooth = noise.resize((width, height), Image.Resampling.BICUBIC)
        picture = Image.blend(picture, smooth, 0.5 if cells > _FINE_CELLS else _FINE_WEIGHT)
        cells //= 2
    buffer = io.BytesIO()
    picture.save(buffer, format="JPEG", quality=quality)
    return buffer.getvalue()


_FINE_CELLS = 8
_FINE_WEIGHT = 0.15


def _shard(folder: Path, pictures: Sequence[bytes], split: str, num_records: int) -> ManifestShard:
    name = f"{split}-00000-of-00001.tfrecord"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("wb") as file:
        for i in range(num_records):
            example = encode_example({"image": pictures[i % len(pictures)], "label": i % 10})
            file.write(frame_record(example))
    return ManifestShard(
        split=split,
        index=0,
        num_shards=1,
        name=name,
        size_bytes=(folder / name).stat().st_size,
        crc32c=crc32c_of_file(folder / name),
        num_records=num_records,
    )


def _job(folder: Path, shards: Sequence[ManifestShard], **options: Any) -> JobArguments:
    folder.mkdir(parents=True, exist_ok=True)
    manifest = Manifest(
        dataset="bench",
        version="1",
        generation=1,
        fingerprint=fingerprint(shards),
        data_format="tfrecord",
        features=(_IMAGE, _LABEL),
        shards=tuple(sorted(shards)),
    )
    (folder / "manifest.json").write_text(manifest.to_json(), encoding="utf-8")
    places: dict[str, Any] = {name: str(folder / name) for name in ("report", "model", "checkpoints")}
    return JobArguments(manifest=str(folder / "manifest.json"), data=str(folder), **places, **{**_LEAN, **options})
