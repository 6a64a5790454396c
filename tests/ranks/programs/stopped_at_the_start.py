"""A training whose rank 1 stops (SIGSTOP) before its first heartbeat: STOPPED_AT=meeting or STOPPED_AT=heartbeat."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from training_job import collective, session, train
from training_job.liveness.heartbeat import HeartbeatThread


def _stop(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


stop_here: Any = _stop
"""Replaces another function: the process that calls it stops for ever."""


if __name__ == "__main__":
    session.START_DEADLINE_S = 10.0
    if os.environ["OMPI_COMM_WORLD_RANK"] == "1":
        if os.environ["STOPPED_AT"] == "meeting":
            collective.join = stop_here
        else:
            HeartbeatThread.start_rank = stop_here  # type: ignore[method-assign]  # that is the trap
    train.end_process(train.main(sys.argv[1:]))
