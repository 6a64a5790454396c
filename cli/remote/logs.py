"""``landfall logs``: the log of one rank of a run, as it is or while it grows."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import click

from cli.errors import CliError
from cli.options import RUN_ID, with_api
from cli.remote.api_client import FIRST_POLL_S, GIVE_UP_S, LAST_POLL_S, ApiClient, ask_patiently
from shared.progress import RankPlace, parse_rank_place

MAX_RANK = 1_000_000


@click.command(epilog="Example: landfall logs landfall-digits-2026-11-20-1f3a9c2b7d5e-a1 --rank 3")
@click.argument("run_id", type=RUN_ID, metavar="RUN")
@click.option("--rank", type=click.IntRange(0, MAX_RANK), default=0, metavar="N", help="Number of the rank, from 0.")
@click.option("-f", "--follow", is_flag=True, help="Show new lines until the run has ended.")
@click.option("--json", "as_json", is_flag=True, help="Print the API's answers as JSON, each on its own line.")
@with_api
def logs(client: ApiClient, run_id: str, rank: int, *, follow: bool, as_json: bool) -> None:
    """Show the log of one rank of a run, and the host that it ran on.

    Problems, and where the rank runs, are printed to standard error.
    """
    is_shown, problem = False, None
    for answer, is_end in _answers(client, run_id, rank, follow=follow):
        problem = answer["problem"]
        unfinished = answer["unfinished"] if is_end else ""
        lines = f"{answer['log_text']}{unfinished}".splitlines()
        is_shown |= bool(lines)
        if as_json:
            click.echo(json.dumps(answer))
        elif lines:
            click.echo("\n".join(map(_in_words, lines)))
        elif problem and not is_end:
            click.echo(problem, err=True)
    if problem and not is_shown:
        advice = "" if follow else f" To wait for it: landfall logs {run_id} --rank {rank} --follow"
        raise CliError(f"{run_id}: {problem}{advice}")


def _answers(client: ApiClient, run_id: str, rank: int, *, follow: bool) -> Iterator[tuple[dict[str, Any], bool]]:
    """Yield the API's answers that contain something new, and whether each is the last one."""
    answer, after, poll_s, said = _ask(client, run_id, rank, 0, patience_s=0.0), 0, FIRST_POLL_S, None
    while True:
        has_moved, after = answer["next"] > after, answer["next"]
        is_end = answer["has_ended"] or not (follow or has_moved)
        if has_moved or is_end or answer["problem"] != said:
            yield answer, is_end
        if is_end:
            return
        said, poll_s = answer["problem"], FIRST_POLL_S if has_moved else min(2 * poll_s, LAST_POLL_S)
        time.sleep(0.0 if has_moved else poll_s)
        answer = _ask(client, run_id, rank, after, patience_s=GIVE_UP_S)


def _ask(client: ApiClient, run_id: str, rank: int, after: int, *, patience_s: float) -> dict[str, Any]:
    """Return one answer. If there is none, ask again for the same lines. Raises CliError."""
    path = f"/api/runs/{quote(run_id, safe='')}/logs"
    return ask_patiently(lambda: client.get(path, rank=rank, after=after), patience_s=patience_s)


def _in_words(line: str) -> str:
    """Return a line of the log; the line with the rank's place becomes a sentence."""
    place: RankPlace | None = parse_rank_place(line)
    return place.in_words() if place else line
