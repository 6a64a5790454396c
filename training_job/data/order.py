"""The order of an epoch, from the seed alone: the same on every machine, in every run."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from shared.manifest import ManifestShard


def order_of_epoch(shards: Sequence[ManifestShard], *, seed: int, epoch: int) -> tuple[ManifestShard, ...]:
    """Return the shards in the order of one epoch."""
    return tuple(sorted(shards, key=lambda shard: _digest(seed, epoch, shard.name)))


def lane_seed(seed: int, epoch: int, lane: int) -> int:
    """Return the seed of one lane in one epoch, for its order and its augmentation; 0 to 2³¹ - 1."""
    return int.from_bytes(_digest(seed, epoch, f"lane {lane}")[:4], "big") >> 1


def _digest(*parts: object) -> bytes:
    # A digest rather than a generator's stream: the answer depends on nothing that was drawn before it.
    return hashlib.sha256("\t".join(map(str, parts)).encode()).digest()
