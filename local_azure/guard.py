"""Run a command, and end it with all its descendants when the process that started this guard ends.

    python -m local_azure.guard --grace-s 5 -- COMMAND...

The starter holds the write end of this process's standard input. When that closes, because the starter has closed
it or has died (of SIGKILL, too), the command gets SIGTERM, and what is left below it is killed. mpirun, ranks and
node move into sessions of their own, so a process group would not reach them. As a "child subreaper" this process
inherits every descendant whose own parent dies, and therefore still finds it.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

import psutil

PR_SET_PDEATHSIG = 1  # linux/prctl.h
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
TERM_S = 1.0
"""Time for descendants to end by themselves once the command has ended."""
POLL_S = 0.05
_LIBC = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    """Set one option of this process; only Linux has it. Raises OSError."""
    if sys.platform != "linux":
        return
    if _LIBC.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value})")


def die_with_parent() -> None:
    """Make this new child end when its parent does; call it before exec."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command until it ends, or until standard input closes or SIGTERM comes; return its exit status."""
    options = _parse(arguments)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    wake = _wake_on_signals()
    child = subprocess.Popen(
        options.command,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=die_with_parent,  # noqa: PLW1509 - there are no threads here
    )
    status = _watch(child.pid, wake)
    if status is None:
        status = _ask_to_end(child.pid, options.grace_s)
    _end_descendants()
    return status


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="guard", allow_abbrev=False)
    parser.add_argument("--grace-s", type=float, default=5.0, help="seconds between SIGTERM and SIGKILL")
    parser.add_argument("--label", default="", help="shown in the list of processes")
    parser.add_argument("command", nargs="+")
    return parser.parse_args(arguments)


def _wake_on_signals() -> int:
    """Return a descriptor that becomes readable on SIGTERM and when a child ends."""
    readable, writable = os.pipe()
    os.set_blocking(readable, False)
    os.set_blocking(writable, False)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, lambda _number, _frame: None)
    for number in (signal.SIGINT, signal.SIGHUP):  # the starter decides what the terminal's signals mean
        signal.signal(number, signal.SIG_IGN)
    return readable


def _watch(pid: int, wake: int) -> int | None:
    """Return the command's status when it ends, None when it must be ended."""
    stdin = sys.stdin.fileno()
    while True:
        ready, _, _ = select.select([stdin, wake], [], [])
        if wake in ready:
            numbers = os.read(wake, 4096)
            status = _reap(pid)
            if status is not None:
                return status
            if signal.SIGTERM in numbers:
                return None
        if stdin in ready and not os.read(stdin, 4096):
            return None


def _ask_to_end(pid: int, grace_s: float) -> int:
    """Send SIGTERM to the command, SIGKILL after the grace; return its status."""
    for number, patience_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, TERM_S)):
        with contextlib.suppress(ProcessLookupError):  # it may have ended this very moment
            os.kill(pid, number)
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            status = _reap(pid)
            if status is not None:
                return status
            time.sleep(POLL_S)
    return 128 + signal.SIGKILL


def _reap(pid: int) -> int | None:
    """Collect every ended child; return the command's exit status once it is among them."""
    status: int | None = None
    with contextlib.suppress(ChildProcessError):  # no children at all
        while True:
            ended, code = os.waitpid(-1, os.WNOHANG)
            if ended == 0:
                break
            if ended == pid:
                exit_code = os.waitstatus_to_exitcode(code)
                status = exit_code if exit_code >= 0 else 128 - exit_code
    return status


def _end_descendants() -> None:
    """End all remaining descendants, whatever their session; repeat, because a process may just have forked."""
    patience = time.monotonic() + TERM_S
    while left := _living():
        number = signal.SIGTERM if time.monotonic() < patience else signal.SIGKILL
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):  # it has ended meanwhile
                process.send_signal(number)
        time.sleep(POLL_S)
        _reap(-1)


def _living() -> list[psutil.Process]:
    return [p for p in psutil.Process().children(recursive=True) if _is_alive(p)]


def _is_alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


if __name__ == "__main__":
    sys.exit(main())
