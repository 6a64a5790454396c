"""A source of examples to pack: entries by split, and how to load one."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from shard_validation.tfrecord.message import Value
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
        """A digest of content that keys and labels do not show; empty if there is none."""
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


def split_off(entries: Sequence[Entry], share: float, *, seed: int) -> dict[str, list[Entry]]:
    """Return the split train and, if the share is not 0, the split validation.

    The split of an entry depends only on its key and the seed, so adding or removing other entries does not move it.
    If all entries would be in one split, the entry nearest to the limit is put into the other one.
    """

    def position(entry: Entry) -> float:
        digest = hashlib.sha256(f"{seed}/{entry.key}".encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:8]) / 2**64

    ordered = sorted(entries, key=position)
    if not share or len(ordered) == 1:
        return {"train": sorted(ordered)}
    num_drawn = sum(position(entry) < share for entry in ordered)
    num_drawn = min(max(num_drawn, 1), len(ordered) - 1)
    return {"train": sorted(ordered[num_drawn:]), "validation": sorted(ordered[:num_drawn])}


def note_of_draw(splits: Mapping[str, Sequence[Entry]], share: float, by: str) -> list[str]:
    """Return a line about the entries that were drawn for the validation; no line where none were."""
    num_drawn, total = len(splits.get("validation", ())), sum(map(len, splits.values()))
    how = f"by {by} and --seed (--validation-share {share:g}; 0 for none)"
    return [f"Drew {num_drawn:,} of {total:,} examples for the split validation, {how}."] if num_drawn else []


def note(what: str, names: Sequence[str]) -> list[str]:
    """Return a line with the number of names and the first of them; no line if there are none."""
    return [f"{what}: {len(names):,}, such as {shown(names[0])}."] if names else []
