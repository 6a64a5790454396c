"""``landfall reconcile``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import click

from cli.api_client import ApiClient
from cli.errors import CliError
from cli.options import with_api


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print what the API answers.")
@with_api
def reconcile(client: ApiClient, *, as_json: bool) -> None:
    """Compare ledger, storage and Azure ML now, as the timer does, and repair the difference."""
    swept = client.post("/api/reconcile")
    click.echo(json.dumps(swept, indent=2) if as_json else "\n".join(describe(swept)))
    if swept["problems"]:
        raise CliError(f"{len(swept['problems'])} parts of the sweep failed; the next one tries them again.")


def describe(swept: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines that describe a sweep as the HTTP API gives it."""
    yield f"{swept['versions']:,} dataset versions, {swept['versions_unchanged']:,} of them unchanged"
    yield f"{swept['shards_judged']:,} shards judged that nobody had announced"
    yield f"{swept['runs']:,} unfinished runs looked at, {swept['unknown_jobs']:,} jobs that the ledger did not know"
    yield f"{swept['notifications']:,} notifications tried, {swept['dead_letters']:,} dead letters found"
    yield from (f"failed: {problem}" for problem in swept["problems"])
