"""A progress bar for bytes, which becomes two plain lines where nobody sees it move."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

Step = Callable[[int], None]
"""Called with the bytes done since the last call."""


@contextlib.contextmanager
def progress_bar(what: str, *, total_bytes: int) -> Iterator[Step]:
    """Show how far `what` is, on a terminal as a bar, in a log as a line at the start and one at the end."""
    if not sys.stdout.isatty():
        click.echo(f"{what} ({total_bytes:,} bytes)")
        yield lambda _bytes: None
        click.echo(f"{what}: done")
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(file=sys.stdout)) as progress:
        task = progress.add_task(what, total=total_bytes)
        yield lambda count: progress.advance(task, count)
