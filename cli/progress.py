"""Progress bars. They appear on a terminal only, and rich is imported only where one appears."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

import click

Step = Callable[[int], None]
"""Takes the bytes or examples done since the last call."""


@contextlib.contextmanager
def uploading_bar(what: str, *, total_bytes: int) -> Iterator[Step]:
    """Show a bar on standard output; a log gets one line at the start and one at the end."""
    if not sys.stdout.isatty():
        click.echo(f"{what} ({total_bytes:,} bytes)")
        yield lambda _bytes: None
        click.echo(f"{what}: done")
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(file=sys.stdout)) as progress:
        task = progress.add_task(what, total=total_bytes)
        yield lambda count: progress.advance(task, count)


@contextlib.contextmanager
def validating_bar(what: str, total_bytes: int | None) -> Iterator[Step]:
    """Show a bar of bytes on standard error, so that standard output stays clean for programs."""
    if not sys.stderr.isatty():
        yield lambda _bytes: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    # By default rich redirects standard output to where the bar is, even where standard output is a file.
    is_shared = sys.stdout.isatty()
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=is_shared) as progress:
        task = progress.add_task(what, total=total_bytes)
        yield lambda count: progress.advance(task, count)


@contextlib.contextmanager
def packing_bar(what: str, num_examples: int) -> Iterator[Step]:
    """Show a bar of examples on standard error."""
    if not sys.stderr.isatty():
        yield lambda _examples: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=num_examples)
        yield lambda count: progress.advance(task, count)
