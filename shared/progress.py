"""Progress lines: how the root tells a follower where the training is, one JSON object on a line of its log."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

PREFIX = "LANDFALL_PROGRESS "
MAX_LINE_CHARS = 4096


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The state of a training after an epoch (or within one)."""

    epoch: int
    """Epochs finished, 1 after the first."""
    epochs: int
    step: int
    """Optimizer updates so far, over all epochs."""
    loss: float
    accuracy: float
    val_loss: float | None = None
    val_accuracy: float | None = None
    images_per_s: float | None = None
    """Throughput of all ranks together."""

    def to_line(self) -> str:
        """Return one log line."""
        return PREFIX + json.dumps(asdict(self))


def parse_progress(line: str) -> Progress | None:
    """Return the progress that a log line states, or None for any other line, also a garbled one."""
    text = line.strip()
    if not text.startswith(PREFIX) or len(text) > MAX_LINE_CHARS:
        return None
    try:
        return Progress(**json.loads(text.removeprefix(PREFIX)))
    except (ValueError, TypeError, RecursionError):  # the last one where brackets are nested deeply
        return None
