"""What a failing rank says: a mistake that all ranks make is said once."""

from __future__ import annotations

import sys
import time

from training_job.errors import TrainingError
from training_job.process_environment import launched_rank

GRACE_S = 3.0
"""How long others leave the word to the root, whose end makes mpirun end them too."""

FORWARDING_S = 0.5
"""What mpirun needs to pass a line on: of a process that ends at once it may forget the last one (seen)."""


def say(error: TrainingError) -> None:
    """Print the error's paragraph: the root at once, others only if the root did not end first."""
    rank = launched_rank()
    if rank:
        time.sleep(GRACE_S)
    sys.stdout.flush()
    print(f"training failed (rank {rank}): {error}", file=sys.stderr, flush=True)
    time.sleep(FORWARDING_S)
