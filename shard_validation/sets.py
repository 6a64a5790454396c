"""Checks of a version's shards as a set, for problems that no single shard shows.

They compare names, sizes, formats and stated record counts, and merge the statistics by split.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from shard_validation.file_lists import TFDS_FILE
from shard_validation.reasons import Reason, ReasonCode
from shard_validation.requirements import DataRequirements
from shard_validation.validate import ShardStatistics, ShardVerdict
from shared.manifest import ManifestShard
from shared.safe_text import shown
from shared.shard_names import MAX_SHARDS_PER_SPLIT
from shared.source_names import DATASET_FILE, packed_from, read_sources

COUNT_FILES = (DATASET_FILE, TFDS_FILE)
"""Landfall's own file, and that of TensorFlow Datasets."""
MAX_COUNTS_BYTES = 32 << 20
FORMAT_VERSION = 1

MAX_LISTED = 10
"""Names or indices in one message."""
MIN_SHARDS_TO_COMPARE = 3
"""With fewer shards in a split, none is the odd one out."""


class CountsError(ValueError):
    """The file with the record counts cannot be read; the message names the member and the problem."""


@dataclass(frozen=True, kw_only=True)
class StatedCounts:
    """Record counts from ``dataset.json`` or ``dataset_info.json``."""

    source: str
    """Name of the file."""
    splits: Mapping[str, tuple[int, ...]]
    """Records of each shard of a split, by index."""


def read_counts(name: str, content: bytes) -> StatedCounts:
    """Read either file, by its name. Raises CountsError."""
    if len(content) > MAX_COUNTS_BYTES:
        raise CountsError(f"{name}: {len(content)} bytes are too many; the limit is {MAX_COUNTS_BYTES}")
    try:
        members = json.loads(content)
        pairs = _tfds_counts(members) if name == TFDS_FILE else _landfall_counts(members)
        splits = {split: tuple(_count(n) for n in counts) for split, counts in pairs}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        # The text of a file that is not UTF-8 is in the repr of its error, and one value may be as long as the file.
        problem = shown(str(error) if isinstance(error, UnicodeDecodeError) else repr(error))
        raise CountsError(f"{name}: record counts of shards cannot be read from it: {problem}") from error
    if any(len(counts) > MAX_SHARDS_PER_SPLIT for counts in splits.values()):
        raise CountsError(f"{name}: a split has more than {MAX_SHARDS_PER_SPLIT} shards")
    return StatedCounts(source=name, splits=splits)


def _landfall_counts(members: Mapping[str, Any]) -> list[tuple[str, list[Any]]]:
    if members["format_version"] != FORMAT_VERSION:
        raise ValueError(f"format_version: expected {FORMAT_VERSION}, got {members['format_version']!r}")
    return [(name, [s["num_records"] for s in split["shards"]]) for name, split in members["splits"].items()]


def _tfds_counts(members: Mapping[str, Any]) -> list[tuple[str, list[Any]]]:
    """Follow protobuf's JSON mapping: 64-bit numbers are strings, empty lists are omitted."""
    return [(split["name"], split.get("shardLengths", [])) for split in members["splits"]]


def _count(value: Any) -> int:
    if isinstance(value, (bool, float)) or (count := int(value)) < 0:
        raise ValueError(f"a record count must be an integer from 0, got {value!r}")
    return count


def with_sources(verdict: ShardVerdict, shard: str, dataset_file: bytes) -> ShardVerdict:
    """Return a verdict whose reasons name the sources of their records, if ``dataset.json`` states them."""
    sources = read_sources(dataset_file, shard=shard, crc32c=verdict.crc32c)
    if not sources:
        return verdict
    return replace(verdict, reasons=tuple(_with_source(reason, sources) for reason in verdict.reasons))


def _with_source(reason: Reason, sources: Sequence[str]) -> Reason:
    source = "" if reason.record_index is None else packed_from(sources, reason.record_index)
    return replace(reason, message=f"{reason.message} ({source})") if source else reason


WARNINGS = frozenset({ReasonCode.SET_SMALL_SHARD})
"""Codes that do not prevent training: the version is not refused, and its closing lists them."""


def check_set(
    shards: Iterable[ManifestShard],
    requirements: DataRequirements,
    *,
    counts: StatedCounts | None = None,
    formats: Mapping[str, str] | None = None,
) -> list[Reason]:
    """Return every problem of accepted shards taken together; the set is complete if all of them are `WARNINGS`.

    ``formats`` maps a shard's name to its format (``tfrecord``, ``tfrecord gzip`` …), if that is known.
    """
    every = sorted(shards)
    by_split: dict[str, list[ManifestShard]] = defaultdict(list)
    for shard in every:
        by_split[shard.split].append(shard)
    reasons = [*_missing_splits(by_split, requirements), *_same_content(every), *_mixed_formats(formats or {})]
    for split, members in by_split.items():
        reasons += _positions(split, members)
        reasons += _sizes(members, requirements.small_shard_ratio)
    if requirements.counts != "ignore":
        reasons += _differing_counts(by_split, counts, is_required=requirements.counts == "required")
    return reasons


def _missing_splits(by_split: Mapping[str, object], requirements: DataRequirements) -> Iterator[Reason]:
    for split in requirements.splits:
        if split not in by_split:
            seen = f"shards of {', '.join(sorted(by_split))}" if by_split else "no shards"
            yield _reason(ReasonCode.SET_SPLIT_MISSING, split, f"shards of split {split}", seen)


def _positions(split: str, members: Sequence[ManifestShard]) -> Iterator[Reason]:
    sizes: dict[int, list[str]] = defaultdict(list)
    names: dict[int, list[str]] = defaultdict(list)
    for shard in members:
        sizes[shard.num_shards].append(shard.name)
        names[shard.index].append(shard.name)
    for index, claimants in names.items():
        if len(claimants) > 1:
            expected = f"one file for index {index} of split {split}"
            yield _reason(ReasonCode.SET_NAMES_COLLIDE, claimants[1], expected, _listed(claimants))
    if len(sizes) > 1:
        usual = max(sizes, key=lambda size: len(sizes[size]))
        for size, odd in sizes.items():
            if size != usual:
                expected = f"-of-{usual:05d}, as in {len(sizes[usual])} shards of split {split}"
                yield _reason(ReasonCode.SET_SIZE_CONTRADICTORY, odd[0], expected, _listed(odd))
        return
    size = members[0].num_shards
    if absent := [index for index in range(size) if index not in names]:
        seen = f"{len(absent)} missing: {_listed(map(str, absent))}"
        yield _reason(ReasonCode.SET_SHARD_MISSING, split, f"all {size} indices of split {split}", seen)


def _same_content(shards: Sequence[ManifestShard]) -> Iterator[Reason]:
    alike: dict[tuple[str, int], list[ManifestShard]] = defaultdict(list)
    for shard in shards:
        alike[shard.crc32c, shard.size_bytes].append(shard)
    for group in alike.values():
        positions = {(s.split, s.index) for s in group}
        if len(positions) > 1 and group[0].num_records:
            seen = f"the same in {_listed(s.name for s in group)}"
            yield _reason(ReasonCode.SET_SAME_CONTENT, group[1].name, "different content in every shard", seen)


def _sizes(members: Sequence[ManifestShard], ratio: float) -> Iterator[Reason]:
    median = statistics.median(s.num_records for s in members)
    for shard in members:
        if not shard.num_records:
            yield _reason(ReasonCode.SET_EMPTY_SHARD, shard.name, "at least one record", "none")
        elif len(members) >= MIN_SHARDS_TO_COMPARE and shard.num_records < ratio * median:
            expected = f"at least {ratio:g} of the median of its split, {median:g} records (small_shard_ratio)"
            yield _reason(ReasonCode.SET_SMALL_SHARD, shard.name, expected, f"{shard.num_records} records")


def _mixed_formats(formats: Mapping[str, str]) -> Iterator[Reason]:
    by_format: dict[str, list[str]] = defaultdict(list)
    for name, data_format in sorted(formats.items()):
        by_format[data_format].append(name)
    if len(by_format) > 1:
        usual = max(by_format, key=lambda f: len(by_format[f]))
        for data_format, odd in by_format.items():
            if data_format != usual:
                seen = f"{data_format}: {_listed(odd)}"
                yield _reason(ReasonCode.SET_FORMATS_MIXED, odd[0], f"{usual}, as in most shards", seen)


def _differing_counts(
    by_split: Mapping[str, Sequence[ManifestShard]], counts: StatedCounts | None, *, is_required: bool
) -> Iterator[Reason]:
    if counts is None:
        if is_required:
            expected = f"record counts in {' or '.join(COUNT_FILES)} (counts: required)"
            yield _reason(ReasonCode.SET_COUNTS_UNREADABLE, COUNT_FILES[0], expected, "no such file")
        return
    for split, stated in counts.splits.items():
        members = by_split.get(split, ())
        if members and len(stated) != members[0].num_shards:
            expected = f"{len(stated)} shards of split {split}, as {counts.source} states"
            yield _reason(ReasonCode.SET_COUNT_DIFFERS, split, expected, f"-of-{members[0].num_shards:05d}")
        for shard in members:
            if shard.index < len(stated) and shard.num_records != stated[shard.index]:
                expected = f"{stated[shard.index]} records, as {counts.source} states"
                yield _reason(ReasonCode.SET_COUNT_DIFFERS, shard.name, expected, f"{shard.num_records} records")
    for split in sorted(set(by_split) - set(counts.splits)):
        expected = f"counts of split {split} in {counts.source}"
        yield _reason(ReasonCode.SET_COUNT_DIFFERS, split, expected, "none")


def _reason(code: ReasonCode, shard: str, expected: str, seen: str) -> Reason:
    return Reason(
        code=code,
        shard=shard,
        expected=shown(expected),
        seen=shown(seen),
        message=f"{shown(shard)}: expected {shown(expected)}, got {shown(seen)}",
    )


def _listed(names: Iterable[str]) -> str:
    every = list(names)
    return ", ".join(every[:MAX_LISTED]) + (f" and {len(every) - MAX_LISTED} more" if len(every) > MAX_LISTED else "")


@dataclass(frozen=True, kw_only=True)
class VersionStatistics:
    """Statistics of a dataset version by split, as the manifest stores them."""

    splits: Mapping[str, ShardStatistics] = field(default_factory=dict)

    @classmethod
    def of(cls, shards: Iterable[tuple[str, ShardStatistics]]) -> Self:
        """Merge the statistics of shards, each with the name of its split."""
        by_split: dict[str, list[ShardStatistics]] = {}
        for split, of_shard in shards:
            by_split.setdefault(split, []).append(of_shard)
        return cls(splits={split: merge_statistics(parts) for split, parts in sorted(by_split.items())})

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready members, for ``Manifest.statistics``."""
        return {"splits": {split: statistics.to_json() for split, statistics in self.splits.items()}}

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote; a manifest without statistics gives none."""
        return cls(splits={k: ShardStatistics.from_json(v) for k, v in members.get("splits", {}).items()})


def merge_statistics(parts: Iterable[ShardStatistics]) -> ShardStatistics:
    """Return the sum of the parts, which stay unchanged; their order matters only once a histogram is full."""
    total = ShardStatistics()
    for part in parts:
        total.merge(part)
    return total
