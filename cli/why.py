"""``landfall why``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any
from urllib.parse import quote

import click

from cli.api_client import ApiClient
from cli.options import as_json_option, with_api

STYLES = {
    "suppressed": "yellow",
    "rejected": "red",
    "failed": "red",
    "lost": "red",
    "dead": "red",
    "stalled": "yellow",
}
"""A word in an entry's action → its style; every other action is plain."""
FULL_TIME = "2026-11-20 12:00:00"
MIN_TEXT_COLUMNS = 60
"""A run's name fits into these columns; a narrower terminal shows texts below their time."""


@click.command(epilog="Example: landfall why digits/2026-11-20")
@click.argument("subject", metavar="DATASET/VERSION|RUN|BLOB")
@as_json_option
@with_api
def why(client: ApiClient, subject: str, *, as_json: bool) -> None:
    """Show the history of a dataset version, a run or a blob and what it waits for.

    A blob is named by its path in the data container, as digits/2026-11-20/train-00000-of-00008.tfrecord.
    """
    subject = subject.strip("/")
    if not subject or {".", ".."} & set(subject.split("/")):  # these would lead to another path of the API
        raise click.UsageError(f"{subject!r} is not a dataset version, a run or a blob.")
    history = client.get(f"/api/why/{quote(subject, safe='/')}")
    if as_json:
        click.echo(json.dumps(history, indent=2))
        return
    show_history(history)


def show_history(history: Mapping[str, Any]) -> None:
    """Print a history: a table of its entries, then what is awaited."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    whole = not console.is_terminal  # in a file and for grep, an entry stays on one line
    console.print(Text(f"{history['kind']} {history['subject']}", style="bold"), soft_wrap=whole)
    if history["num_omitted"]:
        console.print(f"({history['num_omitted']:,} older entries are left out)")
    rows = list(_rows(history))
    widest = max((len(action) for _, action, _ in rows), default=0)
    is_narrow = console.width < len(FULL_TIME) + widest + MIN_TEXT_COLUMNS
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for time, action, text in rows:
        styled = Text(action, style=_style(action))
        if whole:
            console.print(Text(f"{time}  {action:<{widest}}  {text}"), soft_wrap=True)
        elif is_narrow:
            console.print(Text.assemble(f"{time}  ", styled))
            console.print(Padding(Text(text), (0, 0, 0, 4)))
        else:
            table.add_row(time, styled, Text(text))
    if table.row_count:
        console.print(table)
    console.print(Text("awaited now:" if history["awaited"] else "nothing is awaited", style="bold"))
    for text in history["awaited"]:
        console.print(Padding(Text(text), (0, 0, 0, 2)) if not whole else Text(f"  {text}"), soft_wrap=whole)


def _rows(history: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (time, action, text), with consecutive repetitions in one row."""
    entries = history["lines"]
    for (action, text), same in groupby(entries, key=lambda entry: (entry["action"], _text(entry, history))):
        times = [_time(entry["at"]) for entry in same]
        again = f" ({len(times)} times, the last {times[-1]})" if len(times) > 1 else ""
        yield times[0], action, text + again


def _text(entry: Mapping[str, Any], history: Mapping[str, Any]) -> str:
    """Return an entry's reason, after the name of what it is about where that is a part of the history's subject."""
    reason, subject = str(entry["reason"]), str(entry["subject"])
    name = subject.removeprefix(history["subject"] + "/")
    return reason if subject == history["subject"] or reason.startswith(name) else f"{name}: {reason}"


def _style(action: str) -> str:
    return next((style for word, style in STYLES.items() if word in action), "")


def _time(at: str) -> str:
    return at[:19].replace("T", " ")
