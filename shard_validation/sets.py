"""A version's shards as a set: what no shard can show alone. All that is wrong is said, not the first."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from shard_validation.counts import COUNT_FILES, StatedCounts
from shard_validation.reason_codes import ReasonCode
from shard_validation.reasons import Reason, shown
from shard_validation.requirements import DataRequirements
from shared.manifest import ManifestShard

MAX_LISTED = 10
"""Names or indices in one message."""
MIN_BROTHERS = 3
"""With fewer shards there is no telling which one is odd."""


def check_set(
    shards: Iterable[ManifestShard],
    requirements: DataRequirements,
    *,
    counts: StatedCounts | None = None,
    formats: Mapping[str, str] | None = None,
) -> list[Reason]:
    """Return everything that is wrong with accepted shards taken together; empty where the set is whole and sound.

    ``formats`` says of each shard's name what it is (``tfrecord``, ``tfrecord gzip`` …), where that is known.
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
        reasons += _stated(by_split, counts, is_required=requirements.counts == "required")
    return reasons


def _missing_splits(by_split: Mapping[str, object], requirements: DataRequirements) -> Iterator[Reason]:
    for split in requirements.splits:
        if split not in by_split:
            seen = ", ".join(sorted(by_split)) or "no shard"
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
                expected = f"-of-{usual:05d}, as {len(sizes[usual])} shards of split {split} say"
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
            expected = "content of its own in every shard"
            yield _reason(ReasonCode.SET_SAME_CONTENT, group[1].name, expected, _listed(s.name for s in group))


def _sizes(members: Sequence[ManifestShard], ratio: float) -> Iterator[Reason]:
    median = statistics.median(s.num_records for s in members)
    for shard in members:
        if not shard.num_records:
            yield _reason(ReasonCode.SET_EMPTY_SHARD, shard.name, "at least one record", "none")
        elif len(members) >= MIN_BROTHERS and shard.num_records < ratio * median:
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
                yield _reason(ReasonCode.SET_FORMATS_MIXED, odd[0], f"{usual}, as most shards are", seen)


def _stated(
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
        yield _reason(ReasonCode.SET_COUNT_DIFFERS, split, expected, "none stated")


def _reason(code: ReasonCode, shard: str, expected: str, seen: str) -> Reason:
    return Reason(
        code=code,
        shard=shard,
        expected=shown(expected),
        seen=shown(seen),
        message=f"{shown(shard)}: should be {shown(expected)}, was {shown(seen)}",
    )


def _listed(names: Iterable[str]) -> str:
    every = list(names)
    return ", ".join(every[:MAX_LISTED]) + (f" and {len(every) - MAX_LISTED} more" if len(every) > MAX_LISTED else "")
