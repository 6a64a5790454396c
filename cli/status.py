"""``landfall status``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click

from cli.api_client import ApiClient
from cli.dataset_argument import DATASET_VERSION
from cli.reasons import reason_text
from cli.target import with_api

MAX_LISTED = 20


@click.command()
@click.argument("target", type=DATASET_VERSION, metavar="DATASET/VERSION")
@with_api
def status(client: ApiClient, target: tuple[str, str]) -> None:
    """Show what became of a dataset version: what is missing, what was rejected and why, its runs."""
    for line in describe(client.dataset_version(*target)):
        click.echo(line)


def describe(version: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines that describe a version as the HTTP API gives it."""
    name = f"{version['dataset']}/{version['version']}"
    generation = version["generation"]
    if generation is None:
        yield f"{name}: open"
    else:
        size = f"{generation['num_shards']:,} shards, {generation['num_records']:,} records"
        yield f"{name}: whole since {generation['closed_at'][:19]}, {size}"
        yield f"  fingerprint {generation['fingerprint']}"
    for split_name, split in version["splits"].items():
        yield from _split(split_name, split)
    for run in version["runs"]:
        yield f"  run {run['run_id']}: {run['state']}"


def _split(name: str, split: Mapping[str, Any]) -> Iterator[str]:
    total = "?" if split["num_shards"] is None else f"{split['num_shards']:,}"
    yield f"  {name}: {split['accepted']:,} of {total} shards accepted"
    for rejected in split["rejected"][:MAX_LISTED]:
        yield f"    rejected {rejected['shard']}: {reason_text(rejected['reasons'])}"
    for missing in split["missing"][:MAX_LISTED]:
        yield f"    missing {missing}"
    if split["num_missing"] > MAX_LISTED:
        yield f"    … {split['num_missing'] - MAX_LISTED:,} more are missing"
