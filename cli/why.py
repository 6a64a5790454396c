"""``landfall why``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any
from urllib.parse import quote

import click

from cli.api_client import ApiClient
from cli.options import with_api

STYLES = {
    "suppressed": "yellow",
    "rejected": "red",
    "failed": "red",
    "lost": "red",
    "dead": "red",
    "stalled": "yellow",
}
"""By a word in the action; everything else is plain."""
FULL_TIME = "2026-11-20 12:00:00"
ROOM_FOR_TEXT = 60
"""So that the name of a run stays whole; a narrower terminal shows texts below their time."""


@click.command()
@click.argument("subject", metavar="DATASET/VERSION | RUN | BLOB")
@click.option("--json", "as_json", is_flag=True, help="Print what the API answers.")
@with_api
def why(client: ApiClient, subject: str, *, as_json: bool) -> None:
    """Tell what happened to a dataset version, a run or a blob, why, and what is awaited now."""
    subject = subject.strip("/")
    if not subject or {".", ".."} & set(subject.split("/")):  # these would lead to another address of the API's
        raise click.UsageError(f"should be a dataset version, a run or a blob, was {subject!r}")
    story = client.get(f"/api/why/{quote(subject, safe='/')}")
    if as_json:
        click.echo(json.dumps(story, indent=2))
        return
    show(story)


def show(story: Mapping[str, Any]) -> None:
    """Print a story: a table of its lines, then what is awaited."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    whole = not console.is_terminal  # in a file or for grep a line stays one line
    console.print(Text(f"{story['kind']} {story['subject']}", style="bold"), soft_wrap=whole)
    if story["num_omitted"]:
        console.print(f"({story['num_omitted']:,} older lines are left out)")
    rows = list(_rows(story))
    widest = max((len(action) for _, action, _ in rows), default=0)
    is_narrow = console.width < len(FULL_TIME) + widest + ROOM_FOR_TEXT
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for time, action, told in rows:
        styled = Text(action, style=_style(action))
        if whole:
            console.print(Text(f"{time}  {action:<{widest}}  {told}"), soft_wrap=True)
        elif is_narrow:
            console.print(Text.assemble(f"{time}  ", styled))
            console.print(Padding(Text(told), (0, 0, 0, 4)))
        else:
            table.add_row(time, styled, Text(told))
    if table.row_count:
        console.print(table)
    console.print(Text("awaited now:" if story["awaited"] else "nothing is awaited", style="bold"))
    for text in story["awaited"]:
        console.print(Padding(Text(text), (0, 0, 0, 2)) if not whole else Text(f"  {text}"), soft_wrap=whole)


def _rows(story: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (time, action, what is told), with repetitions in one."""
    for (action, told), same in groupby(story["lines"], key=lambda line: (line["action"], _told(line, story))):
        times = [_time(line["at"]) for line in same]
        again = f" ({len(times)} times, the last {times[-1]})" if len(times) > 1 else ""
        yield times[0], action, told + again


def _told(line: Mapping[str, Any], story: Mapping[str, Any]) -> str:
    """Return a line's reason, with what it is about where that is a part of the story's subject."""
    reason, subject = str(line["reason"]), str(line["subject"])
    name = subject.removeprefix(story["subject"] + "/")
    return reason if subject == story["subject"] or reason.startswith(name) else f"{name}: {reason}"


def _style(action: str) -> str:
    return next((style for word, style in STYLES.items() if word in action), "")


def _time(at: str) -> str:
    return at[:19].replace("T", " ")
