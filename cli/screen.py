"""Answers on a terminal: lines are broken between words. A file or a pipe gets each line whole, for grep."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

import click

MIN_COLUMNS = 20
INDENT = 2
"""Extra columns of indentation for the rest of a line that is wrapped."""


def show(lines: Iterable[str], *, err: bool = False) -> None:
    """Print the lines of an answer; with ``err`` those of an error, to standard error."""
    width = columns(sys.stderr if err else sys.stdout)
    for line in lines:
        for part in [line] if width is None else wrapped(line, width):
            click.echo(part, err=err)


def answer(found: Mapping[str, Any], lines: Iterable[str], *, as_json: bool) -> None:
    """Print an answer of the API: in full as JSON, or in lines for people."""
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        show(lines)


def columns(stream: TextIO | None = None) -> int | None:
    """Return the width of the terminal that a stream (standard output) goes to; None for a file or a pipe."""
    is_terminal = (stream or sys.stdout).isatty()
    return max(shutil.get_terminal_size().columns, MIN_COLUMNS) if is_terminal else None


def wrapped(line: str, width: int, indent: int | None = None) -> list[str]:
    """Break a line between words only: a divided name could be neither searched for nor copied.

    ``indent``: columns before the following lines; by default, the indentation of the line itself and some more.
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
