"""``landfall reconcile`` and ``landfall dead-letters list|show|replay``: repair what failed or was missed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import click

from cli import screen
from cli.errors import CliError
from cli.options import DEAD_LETTER_ID, as_json_option, limit_option, with_api
from cli.remote.api_client import ApiClient, shown_time
from shared.safe_text import counted

MAX_ERROR_CHARS = 160
WAITING, DONE, FAILED = ("queued", "running"), "done", "failed"
"""States of a requested sweep."""
FIRST_POLL_S, LAST_POLL_S = 0.2, 5.0
SAY_EVERY_S = 30.0
GIVE_UP_S = 2400.0
"""The app itself gives up a sweep after 35 minutes."""


@click.command(epilog="Example: landfall reconcile")
@as_json_option
@with_api
def reconcile(client: ApiClient, *, as_json: bool) -> None:
    """Run the sweep now: compare the ledger with storage and Azure ML, and repair the differences.

    A timer runs the same sweep every few minutes. The command waits until the sweep has ended; if a sweep is already
    running, it waits for that one. Interrupting the command does not stop the sweep.
    """
    sweep = _await_end(client, client.post("/api/reconcile"))
    swept = sweep.get("report") or {"problems": []}
    if as_json:
        click.echo(json.dumps(sweep, indent=2))
    elif sweep.get("report"):
        screen.show(describe_sweep(swept))
    if sweep["state"] == FAILED:
        problem = f"The sweep failed: {sweep.get('error')}. Look at the app's log, or run landfall reconcile again."
        parts = f"{counted(len(swept['problems']), 'part')} of the sweep failed. The next sweep tries them again."
        raise CliError(parts if sweep.get("report") else problem)


def _await_end(client: ApiClient, sweep: dict[str, Any]) -> dict[str, Any]:
    """Return a requested sweep once it has ended; print its state to standard error."""
    said, started_s, poll_s = None, time.monotonic(), FIRST_POLL_S
    while (state := sweep.get("state")) not in (DONE, FAILED):
        if state not in WAITING:
            raise CliError(f"{client.url} answered with an unknown state {state!r}. Is it an older version?")
        waited_s = time.monotonic() - started_s
        if waited_s > GIVE_UP_S:
            raise CliError(f"The sweep did not end within {GIVE_UP_S:.0f} s. Look at the app's log.")
        now = (state, int(waited_s / SAY_EVERY_S))
        if now != said:
            click.echo(f"The sweep is {state}. Seconds so far: {waited_s:.0f}", err=True)
        said = now
        time.sleep(poll_s)
        poll_s = min(2 * poll_s, LAST_POLL_S)
        sweep = client.get("/api/reconcile")
    return sweep


def describe_sweep(swept: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines that describe a sweep, as the API returns it."""
    yield f"{counted(swept['versions'], 'dataset version')}, {swept['versions_unchanged']:,} of them unchanged"
    yield f"{counted(swept['shards_missed'], 'shard')} whose event was missing sent to be validated"
    runs, jobs = counted(swept["runs"], "unfinished run"), counted(swept["unknown_jobs"], "job")
    yield f"{runs} checked, {jobs} found that the ledger lacks"
    letters = counted(swept["dead_letters"], "dead letter")
    yield f"{counted(swept['notifications'], 'notification')} tried, {letters} found"
    yield from (f"failed: {problem}" for problem in swept["problems"])


@click.group(name="dead-letters", epilog="Example: landfall dead-letters list --limit 5")
def dead_letters() -> None:
    """List, show and replay dead letters: messages and events that could not be processed."""


@dead_letters.command(name="list", epilog="Example: landfall dead-letters list --limit 5")
@limit_option
@click.option(
    "--state", type=click.Choice(["waiting", "replayed"]), help="List only dead letters in this state (default: all)."
)
@click.option(
    "--source", metavar="QUEUE", help="List only dead letters of this queue, or `notification` (default: all)."
)
@click.option(
    "--after",
    type=DEAD_LETTER_ID,
    metavar="DEAD_LETTER_ID",
    help="List dead letters after this one (default: from the first).",
)
@as_json_option
@with_api
def list_letters(
    client: ApiClient, limit: int, *, state: str | None, source: str | None, after: str | None, as_json: bool
) -> None:
    """List dead letters; those that wait for a replay come first."""
    filters = {name: value for name, value in (("state", state), ("source", source), ("after", after)) if value}
    answer = client.get("/api/dead-letters", limit=limit, **filters)
    if as_json:
        click.echo(json.dumps(answer, indent=2))
        return
    for letter in answer["dead_letters"]:
        screen.show(_summary(letter))
    if not answer["dead_letters"]:
        asked = " ".join(f"--{name} {value}" for name, value in filters.items())
        screen.show([f"There are no dead letters{' with ' + asked if asked else ''}."])
    if answer.get("next"):
        screen.show([f"There are more: add --after {answer['dead_letters'][-1]['dead_letter_id']}"])


@dead_letters.command(epilog="Example: landfall dead-letters show 0123456789abcdef")
@click.argument("dead_letter_id", type=DEAD_LETTER_ID)
@as_json_option
@with_api
def show(client: ApiClient, dead_letter_id: str, *, as_json: bool) -> None:
    """Show a dead letter with its error and its payload."""
    letter = client.get(f"/api/dead-letters/{quote(dead_letter_id, safe='')}")
    screen.answer(letter, describe_letter(letter), as_json=as_json)


@dead_letters.command(epilog="Example: landfall dead-letters replay 0123456789abcdef")
@click.argument("dead_letter_ids", type=DEAD_LETTER_ID, nargs=-1, required=True, metavar="DEAD_LETTER_ID...")
@click.option("--json", "as_json", is_flag=True, help="Print the API's answers as JSON, each on its own line.")
@with_api
def replay(client: ApiClient, dead_letter_ids: tuple[str, ...], *, as_json: bool) -> None:
    """Deliver dead letters again. This is safe at any time: work that was done meanwhile is not repeated."""
    for name in dead_letter_ids:
        letter = client.post(f"/api/dead-letters/{quote(name, safe='')}/replay")
        look = f"why {letter['subject']}" if letter["subject"] else f"dead-letters show {name}"
        if as_json:
            click.echo(json.dumps(letter))
            continue
        screen.show([f"{name}: sent to {letter['source']} again. To see the result: landfall {look}"])


def describe_letter(letter: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines that describe a dead letter, as the API returns it."""
    yield f"{letter['dead_letter_id']}: {letter['state']}"
    yield f"  from {letter['source']}, about {letter['subject'] or 'an unknown subject'}"
    died_at = shown_time(letter["died_at"])
    tries, deaths = counted(letter["tries"], "try", "tries"), counted(letter["num_deaths"], "time")
    yield f"  failed {died_at} after {tries}, {deaths} in all"
    if letter["num_replays"]:
        yield f"  replayed {counted(letter['num_replays'], 'time')}, last {shown_time(letter['replayed_at'])}"
    yield f"  error: {letter['error']}"
    yield "  payload:" if letter["is_whole"] else "  payload (beginning only; it cannot be replayed):"
    yield from (f"    {line}" for line in _readable(letter["payload"]).splitlines())


def _summary(letter: Mapping[str, Any]) -> Iterator[str]:
    yield f"{shown_time(letter['died_at'])}  {letter['state']:<8}  {letter['dead_letter_id']}  {letter['source']}"
    yield f"    {letter['subject'] or '(unknown subject)'}: {letter['error'][:MAX_ERROR_CHARS]}"


def _readable(payload: str) -> str:
    try:
        return json.dumps(json.loads(payload), indent=2)
    except (ValueError, RecursionError):
        return payload
