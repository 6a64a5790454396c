"""Run a command, and end it with all its descendants when the process that started the guard ends.

    python -m local_azure.guard --grace-s 5 -- COMMAND...

The starter has the write end of this process's standard input. When the starter closes it or dies (even of SIGKILL),
the command gets SIGTERM, and its remaining descendants are killed. A process group would not include them all,
because mpirun, ranks and node start their own sessions. As a "child subreaper" this process inherits every
descendant whose parent dies, and can therefore still find it.
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
"""Time for descendants to end by themselves after the command has ended."""
POLL_S = 0.05
_LIBC = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    """Set an option of this process, on Linux only. Raises OSError."""
    if sys.platform != "linux":
        return
    if _LIBC.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value})")


def die_with_parent() -> None:
    """Make this new child process end when its parent ends. Call this function before exec."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command until it ends, standard input closes, or SIGTERM arrives; return its exit status."""
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
    for number in (signal.SIGINT, signal.SIGHUP):  # The starter handles the terminal's signals.
        signal.signal(number, signal.SIG_IGN)
    return readable


def _watch(pid: int, wake: int) -> int | None:
    """Wait; return the command's status when it ends, None when it must be ended."""
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
    """Send SIGTERM to the command, and SIGKILL after the grace period; return its status."""
    for number, patience_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, TERM_S)):
        with contextlib.suppress(ProcessLookupError):  # It may have just ended.
            os.kill(pid, number)
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            status = _reap(pid)
            if status is not None:
                return status
            time.sleep(POLL_S)
    return 128 + signal.SIGKILL


def _reap(pid: int) -> int | None:
    """Collect all ended children; return the command's exit status if it is among them."""
    status: int | None = None
    with contextlib.suppress(ChildProcessError):  # there are no children
        while True:
            ended, code = os.waitpid(-1, os.WNOHANG)
            if ended == 0:
                break
            if ended == pid:
                exit_code = os.waitstatus_to_exitcode(code)
                status = exit_code if exit_code >= 0 else 128 - exit_code
    return status


def _end_descendants() -> None:
    """End all remaining descendants in any session. Repeat that, because a process may have just forked."""
    patience = time.monotonic() + TERM_S
    while left := _living():
        number = signal.SIGTERM if time.monotonic() < patience else signal.SIGKILL
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):  # ended in the meantime
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
