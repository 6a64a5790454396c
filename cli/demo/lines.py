"""Prints the demo's story: one line each, with the seconds since the start, as readable in a log as on a terminal."""

from __future__ import annotations

import contextlib
import textwrap
import time
from collections.abc import Callable, Iterator

from rich.console import Console

TIME_COLUMNS = 10
"""What the seconds take, and the space behind them."""


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
        self.text(f"{self.elapsed_s():6.1f} s  {sentence}", indent=TIME_COLUMNS)

    def text(self, text: str = "", *, indent: int = 0) -> None:
        """Print without the time. What a terminal has no room for goes on below, so far from its edge."""
        for line in [text] if not self._console.is_terminal else self._folded(text, indent):
            self._console.print(line, soft_wrap=True)

    def _folded(self, text: str, indent: int) -> list[str]:
        """Break between words only: a name that is cut cannot be found or copied."""
        width = max(self._console.width, 2 * indent)
        folded = textwrap.wrap(
            text, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
        )
        return folded or [""]

    @contextlib.contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Show on a terminal that the demo waits; a log gets nothing."""
        if not self._console.is_terminal:
            yield
            return
        with self._console.status(what):
            yield
