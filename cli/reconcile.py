"""``landfall reconcile``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import click

from cli.api_client import ApiClient
from cli.errors import CliError
from cli.options import as_json_option, with_api


@click.command(epilog="Example: landfall reconcile")
@as_json_option
@with_api
def reconcile(client: ApiClient, *, as_json: bool) -> None:
    """Run the sweep now: compare ledger, storage and Azure ML as the timer does, and repair the differences."""
    swept = client.post("/api/reconcile")
    click.echo(json.dumps(swept, indent=2) if as_json else "\n".join(describe_sweep(swept)))
    if swept["problems"]:
        raise CliError(f"{len(swept['problems'])} parts of the sweep failed. The next sweep tries them again.")


def describe_sweep(swept: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines that describe a sweep, as the API returns it."""
    yield f"{swept['versions']:,} dataset versions, {swept['versions_unchanged']:,} of them unchanged"
    yield f"{swept['shards_judged']:,} shards validated whose event was missing"
    yield f"{swept['runs']:,} unfinished runs checked, {swept['unknown_jobs']:,} jobs found that the ledger lacks"
    yield f"{swept['notifications']:,} notifications tried, {swept['dead_letters']:,} dead letters found"
    yield from (f"failed: {problem}" for problem in swept["problems"])
