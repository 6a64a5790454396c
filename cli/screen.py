"""Answers on a terminal: lines are broken between words. A file or a pipe gets each line whole, for grep."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

import click

MIN_COLUMNS = 20
INDENT = 2
"""What follows a broken line stands this much further to the right than the line."""


def show(lines: Iterable[str]) -> None:
    """Print the lines of an answer."""
    width = columns()
    for line in lines:
        for part in [line] if width is None else wrapped(line, width):
            click.echo(part)


def answer(found: Mapping[str, Any], lines: Iterable[str], *, as_json: bool) -> None:
    """Print an answer of the API: in full as JSON, or in lines for people."""
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        show(lines)


def columns() -> int | None:
    """Return the width of the terminal that standard output goes to; None for a file or a pipe."""
    return max(shutil.get_terminal_size().columns, MIN_COLUMNS) if sys.stdout.isatty() else None


def wrapped(line: str, width: int, indent: int | None = None) -> list[str]:
    """Break a line between words only: a name that is cut can be neither found nor copied.

    ``indent``: columns before what follows; by default what the line itself has, and some more.
    """
    own = len(line) - len(line.lstrip(" ")) + INDENT if indent is None else indent
    parts = textwrap.wrap(
        line,
        max(width, 2 * own),
        subsequent_indent=" " * own,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return parts or [""]
