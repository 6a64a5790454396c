"""How the command ends: typing errors, failures, closed streams, signals; never with a stack trace."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli.errors import ending_on_signals
from tests.support.processes import REPOSITORY, child_environment
from tests.support.terminal import landfall


def test_a_mistyped_command_is_answered_with_the_one_meant(capsys: pytest.CaptureFixture[str]) -> None:
    """The error names the nearest command."""
    status, _, err = landfall(capsys, "statsu")
    assert (2, True) == (status, "There is no command 'statsu'. Did you mean 'status'?" in err)


def test_a_word_that_is_like_no_command_is_answered_with_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    """If no command is similar, the error lists all commands."""
    status, _, err = landfall(capsys, "xyzzy")
    assert (2, True) == (status, "The commands are: demo, up," in err)


@pytest.mark.parametrize("arguments", [["--help"], ["validate", "tests/unit/cli/test_main.py"]])
def test_a_full_disk_is_reported_in_one_line(arguments: list[str]) -> None:
    """If the output cannot be written, one line says why."""
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


def test_a_path_that_cannot_be_opened_is_reported_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """The user chose it, so its name and the reason are enough."""
    name = "x" * 300 + ".yaml"
    expected = f"Error: {name}: cannot be opened: File name too long.\n"
    assert (1, "", expected) == landfall(capsys, "check", name)


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


@pytest.mark.parametrize(
    ("encoding", "arguments", "shown"),
    [
        ("ascii", ["validate", "xé.tfrecord"], "x\\xe9.tfrecord"),
        ("utf-8", ["validate", "x\udcff.tfrecord"], "x\\udcff.tfrecord"),
        ("latin-1", ["pack", "images", "--help"], "FOLDER/<split>/<class>/\\u2026"),
    ],
)
def test_what_an_output_cannot_show_is_spelt_out(
    tmp_path: Path, encoding: str, arguments: list[str], shown: str
) -> None:
    """Names of files and our own messages, on terminals and in files with other encodings."""
    if arguments[0] == "validate":
        (tmp_path / arguments[1]).write_bytes(b"x")
    ended = subprocess.run(
        [sys.executable, "-m", "cli", *arguments],
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env=child_environment(PYTHONIOENCODING=encoding, PYTHONPATH=str(REPOSITORY)),
        check=False,
    )
    assert shown in ended.stdout.decode(encoding)


def test_ctrl_c_while_the_command_is_imported_shows_no_stack_trace(tmp_path: Path) -> None:
    """The process ends by the signal, as a shell expects, and says nothing."""
    (tmp_path / "click.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nimport nothing\n")
    script = "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    script += "runpy.run_module('cli', run_name='__main__')"
    ended = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        cwd=tmp_path,
        env=child_environment(PYTHONPATH=f"{tmp_path}:{REPOSITORY}"),
        check=False,
    )
    assert (-signal.SIGINT, b"", b"") == (ended.returncode, ended.stdout, ended.stderr)


def test_ctrl_c_later_is_answered() -> None:
    """main() has Python's own handler again, which runs what cleans up."""
    script = "import cli.main, os, signal; cli.main.landfall.main = lambda **_: os.kill(os.getpid(), signal.SIGINT); "
    script += "import cli.__main__"
    ended = subprocess.run(
        [sys.executable, "-c", "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); " + script],
        capture_output=True,
        cwd=REPOSITORY,
        env=child_environment(),
        check=False,
    )
    assert (130, b"Stopped.\n") == (ended.returncode, ended.stderr)


def test_nohup_is_heeded() -> None:
    """Under nohup, SIGHUP is ignored: the command is to outlive its terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ending_on_signals():
            signal.raise_signal(signal.SIGHUP)
        assert signal.SIG_IGN == signal.getsignal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
