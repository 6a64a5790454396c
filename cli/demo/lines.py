"""Prints the demo's story: one line each, with the seconds since the start, as readable in a log as on a terminal."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.console import Console


class Lines:
    """Where the story goes. On a terminal a moving line below shows that something is still going on."""

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console or Console(highlight=False, markup=False, emoji=False)
        self._clock = clock
        self._started_s = clock()

    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._started_s

    def say(self, sentence: str) -> None:
        """Print a line of the story."""
        self._console.print(f"{self.elapsed_s():6.1f} s  {sentence}", soft_wrap=True)

    def text(self, text: str = "") -> None:
        """Print without the time."""
        self._console.print(text, soft_wrap=True)

    @contextlib.contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Show on a terminal that the demo waits; a log gets nothing."""
        if not self._console.is_terminal:
            yield
            return
        with self._console.status(what):
            yield
