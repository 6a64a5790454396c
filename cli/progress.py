"""Progress bars. They appear on a terminal only, and rich is imported only where one appears."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Literal, TextIO

import click

Step = Callable[[int], None]
"""Takes the bytes or examples done since the last call."""


@contextlib.contextmanager
def uploading_bar(what: str, *, total_bytes: int, to_stderr: bool = False) -> Iterator[Step]:
    """Show a bar on standard output; a log gets one line at the start and one with the rate at the end."""
    stream = sys.stderr if to_stderr else sys.stdout
    if stream.isatty():
        with _bar(what, total_bytes, counts="bytes", file=stream) as step:
            yield step
        return
    click.echo(f"{what} ({total_bytes:,} bytes)", err=to_stderr)
    start = time.monotonic()
    yield lambda _bytes: None
    seconds = time.monotonic() - start
    rate = f"{total_bytes / 1e6 / max(seconds, 1e-3):.1f} MB/s"
    click.echo(f"{what}: done in {seconds:.1f} s, {rate}", err=to_stderr)


@contextlib.contextmanager
def progress_bar(what: str, total: int | None, *, counts: Literal["bytes", "examples"]) -> Iterator[Step]:
    """Show a bar on standard error, so that standard output stays clean for programs."""
    if not sys.stderr.isatty():
        yield lambda _count: None
        return
    with _bar(what, total, counts=counts, file=sys.stderr) as step:
        yield step


@contextlib.contextmanager
def _bar(what: str, total: int | None, *, counts: str, file: TextIO) -> Iterator[Step]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns: list[ProgressColumn] = [TextColumn("{task.description}"), BarColumn()]
    if counts == "bytes":
        columns += [DownloadColumn(binary_units=True), TransferSpeedColumn()]
    else:
        columns += [MofNCompleteColumn()]
    with Progress(
        *columns,
        TimeRemainingColumn(),
        console=Console(file=file),
        transient=file is sys.stderr,
        # By default rich redirects standard output to the stream of the bar, even if standard output is a file.
        redirect_stdout=sys.stdout.isatty(),
    ) as progress:
        task = progress.add_task(what, total=total)
        yield lambda count: progress.advance(task, count)
