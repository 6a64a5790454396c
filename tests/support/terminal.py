"""The command line as a user runs it: in this process, or in a pseudo-terminal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

from cli.main import main
from local_azure.guard import die_with_parent
from local_azure.processes import PATIENCE_S
from tests.support.processes import REPOSITORY, child_environment

CTRL_C = b"\x03"
_COLUMNS = 200
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


@dataclass
class Terminal:
    """A process and its pseudo-terminal."""

    process: subprocess.Popen[bytes]
    controller: int
    shown: str = ""
    """Everything that it has shown so far, without colours and cursor movements."""

    def wait_for(self, text: str) -> None:
        """Read until a text is shown. Raises EOFError if the process ends first."""
        while text not in self.shown:
            if not self._read():
                raise EOFError(f"{text!r} should have been shown, was not: {self.shown!r}")

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self.controller, keys)

    def wait(self) -> int:
        """Read until the process has closed the terminal; return its exit status."""
        while self._read():
            pass
        return self.process.wait(PATIENCE_S)

    def _read(self) -> bool:
        try:
            content = os.read(self.controller, 1 << 16)
        except OSError:  # raised by Linux once the other end is closed
            content = b""
        self.shown += _ESCAPES.sub("", content.decode(errors="replace"))
        return bool(content)


@contextlib.contextmanager
def landfall_on_terminal(arguments: Sequence[object], *, stdout: Path | None = None) -> Iterator[Terminal]:
    """Run a command line in a terminal, with standard output in a file if one is passed."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, _COLUMNS, 0, 0))
    with contextlib.ExitStack() as stack:
        output: IO[bytes] | int = stack.enter_context(stdout.open("wb")) if stdout else terminal
        process = subprocess.Popen(
            [sys.executable, "-m", "cli", *map(str, arguments)],
            stdin=terminal,
            stdout=output,
            stderr=terminal,
            cwd=REPOSITORY,
            env=child_environment(TERM="xterm"),
            start_new_session=True,
            preexec_fn=_take_terminal,  # noqa: PLW1509 (two system calls, nothing that could take a lock)
        )
    os.close(terminal)
    try:
        yield Terminal(process, controller)
    finally:
        process.kill()
        process.wait(PATIENCE_S)
        os.close(controller)


def _take_terminal() -> None:
    """Make standard input the controlling terminal of this process, so that Ctrl-C comes from it and has an effect.

    A shell makes background processes, perhaps these tests, ignore Ctrl-C, and their children inherit that.
    """
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def landfall(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int | str | None, str, str]:
    """Run a command line; return its exit status, output and error output."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    said = capsys.readouterr()
    return ended.value.code, said.out, said.err
