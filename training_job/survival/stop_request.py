"""SIGTERM: the machine is about to be taken away."""

from __future__ import annotations

import signal
from types import FrameType


class StopRequest:
    """Remembers that somebody asked this process to stop; the training loop asks it after every step."""

    def __init__(self) -> None:
        self.made = False

    def listen(self) -> None:
        """Take SIGTERM from now on."""
        signal.signal(signal.SIGTERM, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.made = True
