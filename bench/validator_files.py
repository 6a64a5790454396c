"""What the validator benchmark reads: shards of records of one size or of many, their bytes random."""

from __future__ import annotations

import io
import random
from dataclasses import dataclass
from pathlib import Path

from shard_validation import encode_example
from shared.record_framing import frame_record

_SEED = 20261120
_SPREAD = 0.5
"""Of the logarithm of a length: two thirds lie between 0.6 and 1.65 times the median."""


@dataclass(frozen=True, kw_only=True)
class ShardFile:
    """One shard of the benchmark."""

    size: int
    """Bytes of each record's image; their median where it is ``varied``."""
    encoding: str
    """``raw``, ``jpeg``, or ``varied``: raw bytes of many lengths."""
    path: Path
    size_bytes: int


def write_shard(folder: Path, *, size: int, total_bytes: int, encoding: str = "raw") -> ShardFile:
    """Write records with an image and a label until there are ``total_bytes`` of them."""
    chance = random.Random(_SEED)  # noqa: S311 - content that does not compress
    path = folder / f"train-{size % 100_000:05d}-of-99999.tfrecord"
    with path.open("wb") as file:
        while file.tell() < total_bytes:
            file.write(frame_record(_example(chance, size, encoding)))
    return ShardFile(size=size, encoding=encoding, path=path, size_bytes=path.stat().st_size)


def write_varied_shard(folder: Path, *, size: int, total_bytes: int) -> ShardFile:
    """Write records whose images differ in length as photographs do: half are below ``size``, a few far above."""
    chance = random.Random(_SEED)  # noqa: S311 - content that does not compress
    path = folder / f"validation-{size % 100_000:05d}-of-99999.tfrecord"
    with path.open("wb") as file:
        while file.tell() < total_bytes:
            length = round(size * chance.lognormvariate(0.0, _SPREAD))
            file.write(frame_record(_example(chance, length, "raw")))
    return ShardFile(size=size, encoding="varied", path=path, size_bytes=path.stat().st_size)


def _example(chance: random.Random, size: int, encoding: str) -> bytes:
    image = chance.randbytes(size) if encoding == "raw" else _jpeg(chance, size)
    return encode_example({"image": image, "label": chance.randrange(10)})


def _jpeg(chance: random.Random, size: int) -> bytes:
    """Return a JPEG of about this size: a small one, its scan filled up with random bytes below its end marker."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.new("RGB", (500, 375)).save(buffer, format="JPEG")
    whole = buffer.getvalue()
    filling = chance.randbytes(max(0, size - len(whole))).replace(b"\xff", b"\xfe")
    return whole[:-2] + filling + whole[-2:]
