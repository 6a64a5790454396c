"""Which signals end a command, and which were meant to be ignored."""

from __future__ import annotations

import signal

from cli.signals import ending_on_signals


def test_nohup_is_heeded() -> None:
    """Who has the end of a terminal ignored wants the command to outlive it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ending_on_signals():
            signal.raise_signal(signal.SIGHUP)
        assert signal.SIG_IGN == signal.getsignal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
