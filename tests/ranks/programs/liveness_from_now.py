"""A training in which liveness checks start once the file LIVENESS_FROM exists; until then the clocks stand still.

Otherwise a machine that is slow to start, compile and read could make a rank seem silent before a test stops one.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from pathlib import Path
from typing import Any

from training_job import train
from training_job.liveness import watch
from training_job.liveness.liveness import Liveness


class Clock:
    """The seconds since the file was first seen."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._began: float | None = None

    def __call__(self) -> float:
        if self._began is None and self._file.exists():
            self._began = time.monotonic()
        return 0.0 if self._began is None else time.monotonic() - self._began


if __name__ == "__main__":
    module: Any = watch
    module.Liveness = functools.partial(Liveness, clock=Clock(Path(os.environ["LIVENESS_FROM"])))
    train.end_process(train.main(sys.argv[1:]))
