"""A loss that is no number any more ends the training: nothing after it is worth the machines' time."""

from __future__ import annotations

import numpy as np

from training_job.errors import NonFiniteLossError
from training_job.metrics import Sums


def check_finite(sums: Sums, *, step: int, rank: int) -> Sums:
    """Return the sums. Raises NonFiniteLossError where one is NaN or infinite."""
    if not np.isfinite(sums).all():
        raise NonFiniteLossError(
            f"The loss of step {step} on rank {rank} should be a finite number, was {sums[1] / sums[0]}. "
            f"Try a lower learning rate or a longer warm-up, and look for damaged records."
        )
    return sums
