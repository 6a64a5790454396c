"""How much chaos: sizes, shares and times. Everything random follows from the seed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.figures import BenchmarkError
from shard_validation import encode_example
from shared.record_framing import frame_record

RECORDS_PER_SHARD = 3
UPLOADS_AT_ONCE = 10


@dataclass(frozen=True, kw_only=True)
class ChaosPlan:
    """One run of chaos. Each dataset has a pipeline of its own: of one pipeline only one run goes at a time."""

    versions: int = 50
    shards: int = 20
    """Of each version, one of them for validation."""
    seed: int = 1
    duplicate_fraction: float = 0.20
    drop_fraction: float = 0.05
    late_fraction: float = 0.02
    """Of the events; these come when everything is over."""
    storage_fault_share: float = 0.03
    """Of the app's requests of its account begin to fail, alone or several in a row."""
    window: int = 10
    """So many events are held and let go shuffled."""
    kill_after_s: tuple[float, float] = (4.0, 12.0)
    """The dev host lives so long once it answers, from and to."""
    calm_after_s: float = 180.0
    """The storm ends then at the latest; it ends early where nothing is left to disturb."""
    give_up_after_s: float = 900.0

    def __post_init__(self) -> None:
        if self.versions < 1 or self.shards < 2:  # noqa: PLR2004 (one for training, one for validation)
            raise BenchmarkError(f"chaos needs a version and two shards, was {self.versions} and {self.shards}")

    @property
    def datasets(self) -> list[str]:
        """One name for each version."""
        return [f"chaos-{number:03d}" for number in range(self.versions)]

    def uploads(self) -> list[tuple[str, bytes]]:
        """Return every blob of every version, path and content, in the order in which they land."""
        blobs = [
            (f"{dataset}/v1/{name}", content(number))
            for dataset in self.datasets
            for number, name in enumerate(self.shard_names())
        ]
        self.dice("uploads").shuffle(blobs)
        return blobs

    def shard_names(self) -> list[str]:
        """Return the shards of a version."""
        train = self.shards - 1
        names = [f"train-{index:05d}-of-{train:05d}.tfrecord" for index in range(train)]
        return [*names, "validation-00000-of-00001.tfrecord"]

    def event_faults(self, topic: str) -> Mapping[str, Any]:
        """Return what the Event Grid emulator is to do to a topic."""
        return {
            "topic": topic,
            "seed": self.dice(topic).randrange(1 << 30),
            "duplicate_fraction": self.duplicate_fraction,
            "drop_fraction": self.drop_fraction,
            "late_fraction": self.late_fraction,
            "order": "shuffle",
            "hold_until": self.window,
        }

    def dice(self, purpose: str) -> random.Random:
        """Return random numbers for one purpose, so that more of one thing leaves the others as they were."""
        return random.Random(f"{self.seed}/{purpose}")  # noqa: S311 (chaos, not secrets)


def content(number: int) -> bytes:
    """Return a good shard that differs from those of other numbers."""
    labels = [(number + record) % 10 for record in range(RECORDS_PER_SHARD)]
    numbered = [encode_example({"label": [label], "number": [number]}) for label in labels]
    return b"".join(frame_record(example) for example in numbered)
