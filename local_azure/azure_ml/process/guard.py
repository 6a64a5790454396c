"""Starts a job's command and answers for everything that it starts.

    main GRACE_S COMMAND...

Its standard input is a pipe from the emulator that never carries a byte: end of file means that the
emulator is gone, and then everything below ends at once. SIGTERM means cancel: SIGTERM to all, SIGKILL
to those left after GRACE_S. Exits as the command did, 128 + n where signal n ended it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from types import FrameType

import psutil

from local_azure.azure_ml.process.parent_death import adopt_orphans, die_with_parent


def signal_descendants(signal_number: int) -> None:
    """Signal every process below this one, children of children included."""
    for process in psutil.Process().children(recursive=True):
        try:
            process.send_signal(signal_number)
        except psutil.NoSuchProcess:
            continue  # it ended between the listing and the signal


def end_when_emulator_ends() -> None:
    """Block until standard input ends, then take everything down."""
    while os.read(0, 1):
        continue
    signal_descendants(signal.SIGKILL)
    os._exit(128 + signal.SIGKILL)


def main() -> int:
    """Run the command to its end and leave nothing behind."""
    grace_s, command = float(sys.argv[1]), sys.argv[2:]
    adopt_orphans()

    def cancel(_signal: int, _frame: FrameType | None) -> None:
        timer = threading.Timer(grace_s, signal_descendants, [signal.SIGKILL])
        timer.daemon = True
        timer.start()
        signal_descendants(signal.SIGTERM)

    signal.signal(signal.SIGTERM, cancel)
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        preexec_fn=lambda: die_with_parent(signal.SIGTERM),  # noqa: PLW1509 - no thread runs yet
    )
    threading.Thread(target=end_when_emulator_ends, daemon=True).start()
    code = child.wait()
    signal_descendants(signal.SIGKILL)
    return code if code >= 0 else 128 - code
