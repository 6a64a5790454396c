"""What a user gets to read: help, typing errors, failures; never a stack trace."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.errors import ending_on_signals
from cli.main import COMMANDS, landfall, main
from tests.support.processes import REPOSITORY


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int | str | None, str, str]:
    """Run a command line; return exit status, output and error output."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    said = capsys.readouterr()
    return ended.value.code, said.out, said.err


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """The overview names each command."""
    status, out, _ = run(capsys, "--help")
    assert (0, []) == (status, [name for name in COMMANDS if f"  {name} " not in out])


def test_help_imports_no_command() -> None:
    """The overview costs no import of storage clients, numpy or the twin."""
    script = (
        "import sys\nfrom cli.main import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('azure', 'numpy', 'httpx', 'rich', 'local_azure')])"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=REPOSITORY, check=True)
    assert "[]" == ended.stdout.splitlines()[-1]


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str], name: str) -> None:
    """Each command that the overview lists can be imported and has help."""
    status, out, _ = run(capsys, name, "--help")
    assert (0, True) == (status, out.startswith(f"Usage: landfall {name}"))


def test_a_mistyped_command_is_answered_with_the_one_meant(capsys: pytest.CaptureFixture[str]) -> None:
    """The error names the nearest command."""
    status, _, err = run(capsys, "statsu")
    assert (2, True) == (status, "There is no command 'statsu'. Did you mean 'status'?" in err)


def test_a_word_that_is_like_no_command_is_answered_with_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    """Where nothing is near, the error lists what there is."""
    status, _, err = run(capsys, "xyzzy")
    assert (2, True) == (status, "There are: demo, up," in err)


def test_a_wrong_dataset_version_says_what_was_expected(capsys: pytest.CaptureFixture[str]) -> None:
    """The error shows the form and what was given."""
    status, _, err = run(capsys, "status", "digits")
    assert (2, True) == (status, "expected <dataset>/<version>, such as digits/2026-11-20, was 'digits'" in err)


def test_an_unreachable_function_app_is_no_stack_trace(capsys: pytest.CaptureFixture[str]) -> None:
    """A refused connection names the address and asks whether it is right."""
    status, _, err = run(capsys, "runs", "--url", "http://127.0.0.1:9")
    assert (1, True, False) == (status, "http://127.0.0.1:9 cannot be reached" in err, "Traceback" in err)


def test_an_address_without_a_scheme_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    """The error says how an address starts."""
    status, _, err = run(capsys, "runs", "--url", "myapp.azurewebsites.net")
    assert (1, True) == (status, "should start with http:// or https://, was 'myapp.azurewebsites.net'" in err)


@pytest.mark.parametrize("arguments", [["--help"], ["validate", "tests/unit/cli/test_main.py"]])
def test_a_full_disk_is_told_without_a_log(arguments: list[str]) -> None:
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


@pytest.mark.parametrize("group", ["pack", "dead-letters"])
def test_an_overview_says_whole_sentences(group: str) -> None:
    """Nothing is cut off at the edge of a usual terminal."""
    said = CliRunner().invoke(landfall, [group, "--help"], terminal_width=80).output
    listed = [line for line in said.partition("Commands:\n")[2].splitlines() if line]
    assert ([], True) == ([line for line in listed if not line.endswith(".") or line.endswith("..")], bool(listed))


def test_nohup_is_heeded() -> None:
    """Who has the end of a terminal ignored wants the command to outlive it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ending_on_signals():
            signal.raise_signal(signal.SIGHUP)
        assert signal.SIG_IGN == signal.getsignal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
