"""What the command says when it cannot do what was asked."""

from __future__ import annotations

import contextlib
import errno
import signal
from collections.abc import Iterator
from types import FrameType

import click

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What writing fails with where the disk, or what one may have of it, is full."""


class CliError(click.ClickException):
    """Shown as one paragraph on standard error; the exit status is 1."""


_ALL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal asked this process to end. No Exception, so that nothing takes it for a failure."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_status = 128 + number


@contextlib.contextmanager
def ending_on_signals(*numbers: signal.Signals) -> Iterator[None]:
    """Raise Interrupted on the first of these signals, or of all three; the following find the stopping under way."""
    before = {number: signal.getsignal(number) for number in numbers or _ALL}
    if before.get(signal.SIGHUP) is signal.SIG_IGN:
        del before[signal.SIGHUP]  # by nohup: the command is to outlive its terminal

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
