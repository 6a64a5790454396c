"""``landfall status``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from cli.api_client import ApiClient
from cli.options import DATASET_VERSION, as_json_option, with_api
from cli.safe_text import readable_bytes

MAX_LISTED = 20


@click.command(epilog="Example: landfall status digits/2026-11-20")
@click.argument("target", type=DATASET_VERSION, metavar="DATASET/VERSION")
@as_json_option
@with_api
def status(client: ApiClient, target: tuple[str, str], *, as_json: bool) -> None:
    """Show a dataset version: missing shards, rejected shards and the reasons, statistics of its data, its runs."""
    version = client.dataset_version(*target)
    click.echo(json.dumps(version, indent=2) if as_json else "\n".join(describe_version(version)))


def describe_version(version: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines that describe a version, as the API returns it."""
    name = f"{version['dataset']}/{version['version']}"
    generation = version["generation"]
    if generation is None:
        yield f"{name}: open"
    else:
        size = f"{generation['num_shards']:,} shards, {generation['num_records']:,} records"
        yield f"{name}: complete since {generation['closed_at'][:19]}, {size}"
        yield f"  fingerprint {generation['fingerprint']}"
    for split_name, split in version["splits"].items():
        yield from _split(split_name, split)
    for reason in version.get("refusal", ())[:MAX_LISTED]:
        yield f"  refused as a set: {reason}"
    yield from _drift(version)
    for run in version["runs"]:
        yield f"  run {run['run_id']}: {run['state']}"


def _split(name: str, split: Mapping[str, Any]) -> Iterator[str]:
    total = "?" if split["num_shards"] is None else f"{split['num_shards']:,}"
    yield f"  {name}: {split['accepted']:,} of {total} shards accepted"
    if split.get("statistics") and split["statistics"]["num_records"]:
        yield from _statistics(split["statistics"])
    for rejected in split["rejected"][:MAX_LISTED]:
        yield f"    rejected {rejected['shard']}: {reason_text(rejected['reasons'])}"
    for missing in split["missing"][:MAX_LISTED]:
        yield f"    missing {missing}"
    if split["num_missing"] > MAX_LISTED:
        yield f"    … {split['num_missing'] - MAX_LISTED:,} more are missing"


def _statistics(statistics: Mapping[str, Any]) -> Iterator[str]:
    yield f"    {statistics['num_records']:,} records, {readable_bytes(statistics['size_bytes'])}"
    for name, seen in statistics["features"].items():
        is_label = name == statistics["label_feature"]
        facts = [
            _labels(statistics["labels"], statistics["other_labels"]) if is_label else _values(seen),
            _range(seen),
        ]
        if known := "; ".join(fact for fact in facts if fact):
            yield f"    {name}: {known}"


def _labels(labels: Mapping[str, int], other: int) -> str:
    """Describe how evenly labels are spread: the rarest and the most frequent one."""
    if not labels:
        return ""
    total = sum(labels.values()) + other
    rarest, commonest = min(labels, key=labels.__getitem__), max(labels, key=labels.__getitem__)
    shares = f"{rarest} ({labels[rarest] / total:.1%}) to {commonest} ({labels[commonest] / total:.1%})"
    return f"{len(labels):,}{' and more' if other else ''} labels, {shares} of the records"


def _values(seen: Mapping[str, Any]) -> str:
    if not seen["most_frequent"]:
        return ""
    value, times = next(iter(seen["most_frequent"].items()))
    if seen["num_distinct"] == 1 and not seen["other"]:
        return f"always {value}"
    more = " and more" if seen["other"] else ""
    return f"{seen['num_distinct']:,}{more} values, most often {value} ({times:,} times)"


def _range(seen: Mapping[str, Any]) -> str:
    unit = " bytes" if seen["kind"] == "bytes" else ""
    return "" if seen["minimum"] is None else f"{seen['minimum']:,g} to {seen['maximum']:,g}{unit}"


def _drift(version: Mapping[str, Any]) -> Iterator[str]:
    """Yield every drift figure beside its threshold, then the figures that exceed it in words."""
    if version.get("drift_reference"):
        yield f"  compared with {version['drift_reference']}, on which the current model of that time was trained:"
    for measure in version.get("drift_measures", ())[:MAX_LISTED]:
        verdict = "TOO FAR" if measure["exceeds"] else "within"
        what = f"{measure['split']} {measure['code'].removeprefix('drift_')}"
        yield f"    {what}: {measure['value']:.3f}, {verdict} {measure['threshold']:.3f}"
    for reason in version.get("drift", ())[:MAX_LISTED]:
        yield f"    {reason}"


def reason_text(reasons: Sequence[Mapping[str, Any]]) -> str:
    """Describe why a shard was rejected: the first reason with its place, and the number of further ones."""
    if not reasons:
        return "no reason on record"
    first = reasons[0]
    places = [("record", first.get("record_index")), ("byte", first.get("byte_offset"))]
    place = ", ".join(f"{name} {number}" for name, number in places if number is not None)
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return f"{first['message']}{f' [{place}]' if place else ''}{more}"
