"""Small shards for the twin's tests."""

from __future__ import annotations

from collections.abc import Callable

from shard_validation.tfrecord.message import encode_example
from shared.record_framing import frame_record

NUM_TRAIN, NUM_VALIDATION = 2, 1
RECORDS_PER_SHARD = 5


def shard(first_label: int = 0) -> bytes:
    """Return a shard of five records, each with a label and a small image."""
    labels = [(first_label + i) % 10 for i in range(RECORDS_PER_SHARD)]
    return b"".join(
        frame_record(encode_example({"label": label, "image": [0.0, 0.25, 0.5, 1.0]})) for label in labels
    )


def whole_version(records: Callable[[int], bytes] = shard) -> dict[str, bytes]:
    """Return all shards of a version, by name; ``records`` builds one from its first label."""
    names = [f"train-{i:05d}-of-{NUM_TRAIN:05d}.tfrecord" for i in range(NUM_TRAIN)]
    names += [f"validation-{i:05d}-of-{NUM_VALIDATION:05d}.tfrecord" for i in range(NUM_VALIDATION)]
    return {name: records(i) for i, name in enumerate(names)}


def one_hot_shard(first_label: int) -> bytes:
    """Return a shard of five records with a label and ten numbers as image, of which only the label's is 1."""
    labels = [(first_label + i) % 10 for i in range(RECORDS_PER_SHARD)]
    return b"".join(
        frame_record(encode_example({"label": label, "image": [float(label == n) for n in range(10)]}))
        for label in labels
    )


def flip_bit(content: bytes, *, offset: int) -> bytes:
    """Return the content with the lowest bit of one byte flipped."""
    damaged = bytearray(content)
    damaged[offset] ^= 1
    return bytes(damaged)
