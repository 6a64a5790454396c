"""The demo's lines on terminals and in logs."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from cli.demo.lines import Lines

NAME = "landfall-digits-20261121-232818-2244c0be11af-a1"
SENTENCE = f"the run waits for its turn, behind run {NAME} of the same pipeline"


def said(*, columns: int, on_terminal: bool) -> list[str]:
    """The lines of one sentence, told twelve seconds after the start."""
    output, times = io.StringIO(), iter([0.0, 12.25])
    console = Console(file=output, width=columns, force_terminal=on_terminal, color_system=None, highlight=False)
    Lines(console, clock=lambda: next(times)).say(SENTENCE)
    return output.getvalue().splitlines()


@pytest.mark.parametrize("columns", [60, 80])
def test_a_terminal_breaks_lines_between_words(columns: int) -> None:
    """No line is wider than the terminal, what follows stands below the sentence, and a name stays whole."""
    lines = said(columns=columns, on_terminal=True)
    assert ("  12.2 s  the run waits", True, [" " * 10] * (len(lines) - 1), True, SENTENCE) == (
        lines[0][:23],
        all(len(line) <= columns for line in lines),
        [line[:10] for line in lines[1:]],
        any(NAME in line for line in lines),
        " ".join(line[10:] for line in lines),
    )


def test_a_log_has_one_line_each() -> None:
    """Whoever searches a log finds whole sentences."""
    assert [f"  12.2 s  {SENTENCE}"] == said(columns=60, on_terminal=False)
