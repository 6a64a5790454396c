"""How the command ends: typing errors, failures, closed streams, signals; never with a stack trace."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli.errors import ending_on_signals
from tests.support.processes import REPOSITORY
from tests.support.terminal import landfall


def test_a_mistyped_command_is_answered_with_the_one_meant(capsys: pytest.CaptureFixture[str]) -> None:
    """The error names the nearest command."""
    status, _, err = landfall(capsys, "statsu")
    assert (2, True) == (status, "There is no command 'statsu'. Did you mean 'status'?" in err)


def test_a_word_that_is_like_no_command_is_answered_with_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    """Where nothing is near, the error lists what there is."""
    status, _, err = landfall(capsys, "xyzzy")
    assert (2, True) == (status, "The commands are: demo, up," in err)


@pytest.mark.parametrize("arguments", [["--help"], ["validate", "tests/unit/cli/test_main.py"]])
def test_a_full_disk_is_reported_in_one_line(arguments: list[str]) -> None:
    """Where the output cannot be written, one line says why."""
    script = "import sys; from cli.main import main; main(sys.argv[1:])"
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-c", script, *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
            check=False,
        )
    assert (1, "Error: the output: cannot be written: No space left on device.\n") == (ended.returncode, ended.stderr)


@pytest.mark.parametrize(
    ("closing", "arguments", "expected"),
    [
        (">&-", ["validate", __file__], (1, "", "")),
        (">&-", ["lint", __file__], (0, "", "")),
        (">&-", ["runs", "--url", "nowhere"], (1, "", "Error:")),
        ("2>&-", ["validate", __file__], (1, "REJECTED", "")),
        ("2>&-", ["statsu"], (2, "", "")),
        ("2>/dev/full", ["statsu"], (2, "", "")),
        ("<&- >&- 2>&-", ["validate", __file__], (1, "", "")),
    ],
)
def test_a_closed_stream_takes_nothing_and_changes_nothing(
    closing: str, arguments: list[str], expected: tuple[int, str, str]
) -> None:
    """The exit status is the command's own, and the other stream gets what is meant for it: its first word, here."""
    ended = subprocess.run(
        ["sh", "-c", f'exec "$@" {closing}', "sh", sys.executable, "-m", "cli", *arguments],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        check=False,
    )
    assert expected == (ended.returncode, ended.stdout.partition(" ")[0], ended.stderr.partition(" ")[0])


def test_no_file_takes_the_place_of_a_closed_stream() -> None:
    """A child process would write its output into it."""
    script = "import os, sys; from cli.main import main; sys.argv[1:] = ['--help']\ntry: main()\nexcept SystemExit: "
    script += "os.write(2, os.readlink('/proc/self/fd/1').encode())"
    ended = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-c", script],
        stderr=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        check=True,
    )
    assert "/dev/null" == ended.stderr


def test_nohup_is_heeded() -> None:
    """Under nohup, SIGHUP is ignored: the command is to outlive its terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ending_on_signals():
            signal.raise_signal(signal.SIGHUP)
        assert signal.SIG_IGN == signal.getsignal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
