"""Real processes for tests: started on loopback, awaited with a deadline, gone when the test process goes."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

REPOSITORY = Path(__file__).resolve().parents[2]

T = TypeVar("T")

PATIENCE_S = 120.0
"""For what should happen at once: only a failing test waits so long, and a busy machine does not make one fail."""

_PR_SET_PDEATHSIG = 1
"""prctl(2): the signal that the kernel sends to a process when its parent dies."""

_LIBC = ctypes.CDLL(None)


class ProcessFailedError(RuntimeError):
    """A process ended or stayed silent where it should have become ready; the message holds its log's end."""


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent ends; for use between fork and exec."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def free_port() -> int:
    """A loopback port that was free a moment ago; prefer port 0 where a server can say what it got."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def child_environment(**settings: str) -> dict[str, str]:
    """This process's environment with ``settings`` on top, and without CONTAINER_NAME.

    CONTAINER_NAME makes the Functions worker believe that it runs in Azure.
    """
    return {key: value for key, value in os.environ.items() if key != "CONTAINER_NAME"} | settings


def wait_until(
    condition: Callable[[], T | None], *, what: str, timeout_s: float = PATIENCE_S, poll_s: float = 0.02
) -> T:
    """Poll ``condition`` until it is truthy and return what it gave; TimeoutError names ``what`` otherwise."""
    deadline = time.monotonic() + timeout_s
    while True:
        seen = condition()
        if seen:
            return seen
        if time.monotonic() >= deadline:
            raise TimeoutError(f"{what} should have happened within {timeout_s} s; last seen: {seen!r}")
        time.sleep(poll_s)


@dataclass(frozen=True, kw_only=True)
class ServerProcess:
    """A child in a process group of its own whose standard output and error go to one file."""

    popen: subprocess.Popen[bytes]
    log: Path
    """Standard output and error, in the order in which they were written."""

    def log_text(self) -> str:
        """All that the process printed so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def wait_for_line(self, text: str, *, timeout_s: float = PATIENCE_S) -> str:
        """The first line of the log that contains ``text``; ProcessFailedError when the process ends first."""

        def find() -> str | None:
            exit_code = self.popen.poll()
            lines = self.log_text().splitlines()
            line = next((line for line in lines if text in line), None)
            if line is None and exit_code is not None:
                raise ProcessFailedError(f"ended with {exit_code} before {text!r} was seen:\n{_end(lines)}")
            return line

        try:
            return wait_until(find, what=f"{text!r} in {self.log.name}", timeout_s=timeout_s)
        except TimeoutError as error:
            raise ProcessFailedError(f"{error}\n{_end(self.log_text().splitlines())}") from error

    def stop(self, *, timeout_s: float = PATIENCE_S) -> int:
        """Ask politely (SIGTERM), and return the exit code; a process that ignores it is killed and reported."""
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGTERM)
        try:
            return self.popen.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise ProcessFailedError(f"still ran {timeout_s} s after SIGTERM:\n{self.log_text()}") from error

    def kill(self) -> None:
        """End the whole group at once, as a power cut would."""
        if self.popen.poll() is None:
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait(PATIENCE_S)


def start_process(
    arguments: Sequence[str], *, log: Path, environment: Mapping[str, str], cwd: Path = REPOSITORY
) -> ServerProcess:
    """Start ``arguments`` in a group of its own. It dies with the *thread* that starts it: use the main one."""
    with log.open("ab") as output:
        popen = subprocess.Popen(
            list(arguments),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            cwd=cwd,
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 (one prctl call, nothing that could take a lock)
        )
    return ServerProcess(popen=popen, log=log)


def start_module(
    module: str, *arguments: str, log: Path, environment: Mapping[str, str], cwd: Path = REPOSITORY
) -> ServerProcess:
    """Start ``python -m module arguments`` with the interpreter that runs the tests."""
    return start_process([sys.executable, "-u", "-m", module, *arguments], log=log, environment=environment, cwd=cwd)


def _end(lines: Sequence[str]) -> str:
    return "\n".join(lines[-40:])
