"""Early ends of a command: an error that its user reads, or a signal."""

from __future__ import annotations

import contextlib
import errno
import signal
from collections.abc import Iterator
from types import FrameType

import click

DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Error numbers of a write to a full disk, or beyond the user's quota."""
NOT_OPENED = frozenset({errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP})
"""Error numbers of a path that this user may not open, or that no user can open."""
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class CliError(click.ClickException):
    """The command cannot do what was asked. Shown as one paragraph on standard error; the exit status is 1."""


class Interrupted(BaseException):
    """A signal asked this process to end. It is not an Exception, so that no handler treats it as a failure."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_status = 128 + number


@contextlib.contextmanager
def ending_on_signals(*numbers: signal.Signals) -> Iterator[None]:
    """Raise Interrupted on the first of these signals (default: SIGINT, SIGTERM and SIGHUP); ignore later ones.

    SIGTERM and SIGHUP then end a command as Ctrl-C does: `finally` blocks run and stop everything it started.
    """
    before = {number: signal.getsignal(number) for number in numbers or _ENDING}
    if before.get(signal.SIGHUP) is signal.SIG_IGN:
        del before[signal.SIGHUP]  # started by nohup: the command must outlive its terminal

    def end(number: int, _frame: FrameType | None) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted(number)

    for number in before:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
