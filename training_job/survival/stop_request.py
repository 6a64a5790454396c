"""SIGTERM or SIGUSR1: somebody wants the training to stop in good order.

mpirun passes SIGUSR1 on to all ranks and waits. SIGTERM to mpirun is no such wish: it kills the ranks within
half a second, and nothing can make it wait (a constant of Open MPI 5's runtime, tried and read).
"""

from __future__ import annotations

import signal
from types import FrameType


class StopRequest:
    """Remembers that somebody asked this process to stop; the training loop asks it after every step."""

    def __init__(self) -> None:
        self.made = False

    def listen(self) -> None:
        """Take both signals from now on."""
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.made = True
