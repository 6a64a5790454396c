"""Answers in a terminal of few columns, and in a pipe."""

from __future__ import annotations

import json
import os
import sys

import pytest

from cli.main import main
from cli.screen import answer, columns, show, wrapped

RUN = "landfall-digits-2026-11-20-f14f4ec631dc-a1"
Capture = pytest.CaptureFixture[str]


def narrow(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """Let standard output be a terminal of so many columns."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((width, 40)))


@pytest.mark.parametrize("width", [80, 50, 20])
def test_a_terminal_gets_lines_broken_between_words(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, width: int
) -> None:
    """No name is cut, none is lost, and what follows stands further to the right."""
    narrow(monkeypatch, width)
    line = f"  digits/v4: run {RUN} planned: waits for run {RUN}; it is next"
    show([line, "short"])
    *broken, last = capsys.readouterr().out.splitlines()

    assert (width, "short") == (columns(), last)
    assert line.split() == " ".join(broken).split()
    assert all(part.startswith("    ") for part in broken[1:])
    assert all(len(part) <= max(width, len(RUN) + 5) for part in broken)


def test_a_pipe_gets_each_line_whole(capsys: Capture) -> None:
    line = "word " * 100
    show([line])

    assert (None, f"{line}\n") == (columns(), capsys.readouterr().out)


def test_json_is_never_broken(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    narrow(monkeypatch, 20)
    found = {"reason": "many words " * 20}
    answer(found, ["not this"], as_json=True)

    assert found == json.loads(capsys.readouterr().out)


def test_an_error_is_broken_between_words_too(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    """This depends on whether standard error is a terminal, not on standard output."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((40, 40)))
    with pytest.raises(SystemExit):
        main(["submit", "digits/v1", "--dry-run", "--sweep", "epochs=1,2", "--url", "http://127.0.0.1:9"])
    shown = capsys.readouterr().err.splitlines()

    assert "leave --sweep and --sweep-file out." in " ".join(line.strip() for line in shown)
    assert [] == [line for line in shown if len(line) > 40]


def test_an_empty_line_stays_one() -> None:
    assert [""] == wrapped("", 50)
