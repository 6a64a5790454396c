"""Whether the options of Landfall's training fit the data, as far as the manifest tells: before anything is paid for.

The submitter refuses what does not fit; the training checks again, because it may be started by hand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from shared.job_arguments import TrainingOptions
from shared.manifest import FeatureSpec, Manifest

MAX_NAMED = 20


def misfits(options: TrainingOptions, manifest: Manifest, *, world_size: int) -> list[str]:
    """Return why the training cannot train on the data; each text begins with the option to change."""
    return [
        *_of_splits(options, manifest, world_size),
        *_of_features(options, manifest),
        *_of_labels(options, manifest),
    ]


def _of_splits(options: TrainingOptions, manifest: Manifest, world_size: int) -> Iterator[str]:
    splits = sorted({shard.split for shard in manifest.shards})
    for option in ("train_split", "validation_split"):
        name = getattr(options, option)
        if name not in splits:
            yield f"{option}: the data have no split {_quoted(name)}; they have {named(splits)}"
    times = f", accumulated {options.gradient_accumulation} times," if options.gradient_accumulation > 1 else ""
    step = world_size * options.per_process_batch_size * options.gradient_accumulation
    num_records = manifest.num_records(options.train_split)
    if options.train_split in splits and num_records < step:
        yield (
            f"per_process_batch_size: {options.per_process_batch_size} on {world_size} processes"
            f"{times} needs {step} records for each step, but split {options.train_split} has {num_records}"
        )


def _of_features(options: TrainingOptions, manifest: Manifest) -> Iterator[str]:
    for option in ("image_feature", "label_feature"):
        name = getattr(options, option)
        spec = _feature(manifest, name)
        if spec is None:
            known = named(sorted(one.name for one in manifest.features))
            yield f"{option}: the data have no feature {_quoted(name)}; data.features names {known}"
            continue
        if option == "label_feature" and (spec.kind, spec.shape) != ("int64", ()):
            yield f"label_feature: {_quoted(name)} is no label; a label is one int64 number"
        for split, statistics in _read_splits(options, manifest):
            total, present = statistics.get("num_records", 0), _seen(statistics, name).get("num_present")
            if present is not None and present < total:
                yield f"{option}: {total - present} of {total} records of split {split} have no {_quoted(name)}"


def _of_labels(options: TrainingOptions, manifest: Manifest) -> Iterator[str]:
    spec = _feature(manifest, options.label_feature)
    if spec is None or spec.kind != "int64":
        return
    seen = [_seen(statistics, spec.name) for _, statistics in _read_splits(options, manifest)]
    lows = [one["minimum"] for one in seen if one.get("minimum") is not None]
    highs = [one["maximum"] for one in seen if one.get("maximum") is not None]
    if lows and highs:
        yield from (text for _, text in label_misfits(options, min(lows), max(highs)))


def label_misfits(options: TrainingOptions, lowest: float, highest: float) -> Iterator[tuple[str, str]]:
    """Yield each option that does not allow the labels, with a text that begins with it."""
    if lowest < options.label_offset:
        yield "label_offset", f"label_offset: {options.label_offset}, but labels go down to {lowest:g}"
    offset = f" with label_offset: {options.label_offset}" if options.label_offset else ""
    if highest - options.label_offset >= options.num_classes:
        yield "num_classes", f"num_classes: {options.num_classes}{offset}, but labels go up to {highest:g}"


def _read_splits(options: TrainingOptions, manifest: Manifest) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the statistics of the splits that the training reads; none where they were too large to keep."""
    splits: Mapping[str, Any] = manifest.statistics.get("splits", {})
    for split in dict.fromkeys((options.train_split, options.validation_split)):
        if split in splits:
            yield split, splits[split]


def _seen(statistics: Mapping[str, Any], feature: str) -> Mapping[str, Any]:
    seen: Mapping[str, Any] = statistics.get("features", {}).get(feature, {})
    return seen


def _feature(manifest: Manifest, name: str) -> FeatureSpec | None:
    return next((spec for spec in manifest.features if spec.name == name), None)


def _quoted(name: str) -> str:
    return f'"{name[:100]}"'


def named(names: list[str]) -> str:
    """Return a bounded list of names, each of them bounded."""
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return (", ".join(name[:100] for name in names[:MAX_NAMED]) or "none") + more
