"""A source of examples to pack: entries by split, and how to load one."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from shard_validation.examples.message import Value
from shared.manifest import FeatureSpec
from shared.safe_text import shown


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """One example of the source, not yet loaded."""

    key: str
    """A path below the source, or a row. Entries are sorted by it, and errors name it."""
    label: int


class Collection(Protocol):
    """A source of examples. Entries are small: a million of them fit in memory."""

    @property
    def splits(self) -> Mapping[str, Sequence[Entry]]:
        """The entries of each split."""
        ...

    @property
    def features(self) -> tuple[FeatureSpec, ...]:
        """The features of every example: packed shards are validated against them."""
        ...

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes by label; empty where labels have no names."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """Notes on the source for the user, such as files that were left out."""
        ...

    @property
    def stamp(self) -> str:
        """A digest of content that keys and labels do not show; empty where there is none."""
        ...

    def where(self, entry: Entry) -> str:
        """Return the file, or the row of a file, that an entry comes from, for errors."""
        ...

    def load(self, entry: Entry) -> Mapping[str, Value]:
        """Return an entry's features. Raises OSError, or ValueError with the problem."""
        ...


def deal(entries: Sequence[Entry], num_shards: int, *, seed: str) -> list[list[Entry]]:
    """Return the entries of each shard. They depend on seed and entries only, not on the order of the entries.

    Shards differ by one entry at most, in size and in each label. Within a shard the order is random.
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
    """Return (train, validation); the validation gets the same share of each label, rounded."""
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


def note(what: str, names: Sequence[str]) -> list[str]:
    """Return a line with the number of names and the first of them; no line where there are none."""
    return [f"{what}: {len(names):,}, such as {shown(names[0])}."] if names else []
