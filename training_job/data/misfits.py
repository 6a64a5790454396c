"""Find the record that does not fit the options, because TensorFlow stops at it without naming it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from shared.configuration import label_misfits, named
from shared.job_arguments import TrainingOptions
from shared.manifest import ManifestShard
from shared.safe_text import one_line, shown
from shared.source_names import DATASET_FILE, MAX_FILE_BYTES, packed_from, read_sources
from training_job.errors import DataError

BUDGET_S = 120.0
"""Time limit of the search; all ranks wait meanwhile."""


@dataclass(frozen=True, kw_only=True)
class RecordFacts:
    """The facts about a record that messages need."""

    label: int | None
    """None if the record has no label of the right kind."""
    has_image: bool
    names: tuple[str, ...]
    """Names of all the record's features, of any kind."""


ReadFacts = Callable[[str], Iterator[RecordFacts]]
"""Maps a shard's name to its records, in their order. Raises DataError if it cannot be read."""


def find_misfit(
    shards: Iterable[ManifestShard],
    read_facts: ReadFacts,
    options: TrainingOptions,
    folder: Path,
    *,
    budget_s: float = BUDGET_S,
    clock: Callable[[], float] = time.monotonic,
) -> str | None:
    """Return which option does not fit which record; None if all records that were read in time fit.

    It is None, too, if a shard cannot be read. ``folder`` may have the dataset.json that names the sources of the
    records.
    """
    until = clock() + budget_s
    lowest: tuple[int, ManifestShard, int] | None = None
    highest = lowest
    try:
        for shard, index, record in _records(shards, read_facts):
            if record.label is None or not record.has_image:
                option = "image_feature" if record.label is not None else "label_feature"
                return f"{option}: {_place(folder, shard, index)} has no {_wanted(options, option, record)}"
            if lowest is None or record.label < lowest[0]:
                lowest = (record.label, shard, index)
            if highest is None or record.label > highest[0]:
                highest = (record.label, shard, index)
            if clock() > until:
                break
    except DataError:
        return None  # what cannot be read is already known, and is reported by the search for damage
    if lowest is None or highest is None:
        return None
    problems = label_misfits(options, lowest[0], highest[0])
    ends = {"label_offset": lowest, "num_classes": highest}
    found = [f"{text} ({_place(folder, *ends[option][1:])})" for option, text in problems]
    return "; ".join(found) or None


def _records(
    shards: Iterable[ManifestShard], read_facts: ReadFacts
) -> Iterator[tuple[ManifestShard, int, RecordFacts]]:
    for shard in shards:
        for index, record in enumerate(read_facts(shard.name)):
            yield shard, index, record


def _wanted(options: TrainingOptions, option: str, record: RecordFacts) -> str:
    """Return the end of a message about a feature that is missing or of the wrong kind."""
    name = str(getattr(options, option))
    if name in record.names:
        kind = "value that can be trained on" if option == "image_feature" else "single int64 number"
        return f'{kind} in "{shown(name)}"'
    others = one_line(named(sorted(record.names)))
    return f'"{shown(name)}"; it has {others}'


def _place(folder: Path, shard: ManifestShard, index: int) -> str:
    source = packed_from(_sources(folder, shard), index)
    return f"record {index} of {shown(shard.name)}{f', {source}' if source else ''}"


def _sources(folder: Path, shard: ManifestShard) -> list[str]:
    try:
        with (folder / DATASET_FILE).open("rb") as file:
            return read_sources(file.read(MAX_FILE_BYTES + 1), shard=shard.name, crc32c=shard.crc32c)
    except OSError:
        return []  # the message lacks a name
