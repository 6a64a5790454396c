"""The data of a smoke test: two shards of tiny images, bright or dark, the same bytes each time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shard_validation.examples.message import encode_example
from shared.record_framing import frame_record

NUM_TRAIN, NUM_VALIDATION = 64, 16
PIXELS = 64


def smoke_shards() -> Mapping[str, bytes]:
    """Return name and content of both shards."""
    return {
        "train-00000-of-00001.tfrecord": _shard(NUM_TRAIN),
        "validation-00000-of-00001.tfrecord": _shard(NUM_VALIDATION),
    }


def _shard(num_records: int) -> bytes:
    return b"".join(frame_record(encode_example(_record(number))) for number in range(num_records))


def _record(number: int) -> dict[str, int | Sequence[float]]:
    label = number % 2
    return {"label": label, "image": [label * 200.0 + (number + pixel) % 50 for pixel in range(PIXELS)]}
