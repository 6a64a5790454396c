"""Run a long command with its output in a log, progress on the terminal, and its last lines on failure."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

PROGRESS_EVERY_S = 30
TAIL_LINES = 20


class SetupError(Exception):
    """Set-up failed; the message names the step, and contains its log's path and last lines."""


def say(line: str) -> None:
    """Print one line of progress and flush it."""
    print(f"setup: {line}", file=sys.stderr, flush=True)


def run_logged(what: str, command: Sequence[str], *, log: Path, cwd: Path, env: Mapping[str, str]) -> None:
    """Run `command`, appending its output to `log`.

    Raises SetupError if it cannot start or exits with a status other than 0.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        output.write(f"\n$ {' '.join(command)}\n".encode())
        output.flush()
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=cwd, env=dict(env)
            )
        except OSError as error:
            raise SetupError(f"{what}: cannot start {command[0]}: {error}") from error
        status = _wait(what, process, log)
    if status != 0:
        raise SetupError(f"{what} exited with status {status}. The last lines of {log}:\n{tail(log)}")


def tail(log: Path) -> str:
    """Return the last lines of a log, indented, without pip's warnings about missing package locations."""
    lines = log.read_text(errors="replace").splitlines()
    relevant = [line for line in lines if not line.startswith("WARNING: Location")]
    return "\n".join(f"    {line}" for line in relevant[-TAIL_LINES:])


def _wait(what: str, process: subprocess.Popen[bytes], log: Path) -> int:
    started = time.monotonic()
    try:
        while True:
            try:
                return process.wait(timeout=PROGRESS_EVERY_S)
            except subprocess.TimeoutExpired:
                say(f"{what}: {time.monotonic() - started:.0f} s so far (log: {log})")
    finally:
        if process.poll() is None:  # if interrupted, end the child too
            process.terminate()
            process.wait()
