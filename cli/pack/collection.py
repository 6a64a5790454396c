"""What is to be packed: entries by split, and how to load one."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from shard_validation.examples.message import Value
from shared.example_schema import FeatureSpec


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """One example to be."""

    key: str
    """Names it in errors, and orders it: a path below the source, or a row."""
    label: int


class Collection(Protocol):
    """A source of examples; entries are small, so that a million of them fit in memory."""

    @property
    def splits(self) -> Mapping[str, Sequence[Entry]]:
        """The entries of each split."""
        ...

    @property
    def features(self) -> tuple[FeatureSpec, ...]:
        """What every example has: the packed shards are validated against it."""
        ...

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the labels, by label; empty where there are none."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """What the user should hear about the source: what was left out, or taken for something."""
        ...

    @property
    def stamp(self) -> str:
        """Tells the source from another that has the same entries; empty where their keys tell it."""
        ...

    def where(self, entry: Entry) -> str:
        """Return where an entry comes from, for errors: a file, or a row of one."""
        ...

    def load(self, entry: Entry) -> Mapping[str, Value]:
        """Return an entry's features. Raises OSError, or ValueError with what is wrong."""
        ...


def deal(entries: Sequence[Entry], num_shards: int, *, seed: str) -> list[list[Entry]]:
    """Return the entries of each shard, the same for the same seed and entries, in any order they come.

    Sizes differ by one entry at most, and so do the shards' shares of each label; within a shard the order is random.
    """
    mixer = random.Random(seed)  # noqa: S311 - an order, not a secret
    mixed = sorted(entries)
    mixer.shuffle(mixed)
    mixed.sort(key=lambda entry: entry.label)
    shards = [mixed[i::num_shards] for i in range(num_shards)]
    for shard in shards:
        mixer.shuffle(shard)
    return shards


def split_off(entries: Sequence[Entry], share: float, *, seed: str) -> tuple[list[Entry], list[Entry]]:
    """Return (train, validation): every label gives the same share, rounded, to the validation."""
    by_label: dict[int, list[Entry]] = {}
    for entry in sorted(entries):
        by_label.setdefault(entry.label, []).append(entry)
    train: list[Entry] = []
    validation: list[Entry] = []
    for label, members in sorted(by_label.items()):
        random.Random(f"{seed}/{label}").shuffle(members)  # noqa: S311 - an order, not a secret
        num_validation = round(share * len(members))
        validation += members[:num_validation]
        train += members[num_validation:]
    return train, validation
