"""A bar on standard error, so that standard output stays clean for programs; none where nobody sees it move."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

Step = Callable[[int], None]


@contextlib.contextmanager
def bar_on_stderr(what: str, total_bytes: int | None) -> Iterator[tuple[Step, Callable[[str], None]]]:
    """Show a bar; yield what to call with the bytes done, and what to print lines with meanwhile."""
    if not sys.stderr.isatty():
        yield lambda _: None, _print
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    # rich would have what is written to standard output go where the bar is, also where that is a file
    is_shared = sys.stdout.isatty()
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=is_shared) as progress:
        task = progress.add_task(what, total=total_bytes)
        yield lambda num_bytes: progress.advance(task, num_bytes), _print


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
