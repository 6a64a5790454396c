"""Ranks start with the same weights and apply the same gradients; here it is seen whether they did."""

from __future__ import annotations

import numpy as np
from crc32c import crc32c

from training_job import collective
from training_job.errors import RanksPartedError
from training_job.session import Session


def check_together(session: Session) -> None:
    """Compare a digest of every rank's weights with the root's. Raises RanksPartedError naming those that differ."""
    digests = np.zeros(session.world.size, np.float64)
    digests[session.world.rank] = weights_crc32c(session)
    digests = collective.summed(digests, "agreement")
    parted = [rank for rank, digest in enumerate(digests) if digest != digests[0]]
    if parted:
        raise RanksPartedError(
            f"After step {session.position.step} all ranks should have the same weights, "
            f"but ranks {parted} differ from the root. "
            f"Something changes weights outside of the training step, or a node computes wrongly."
        )


def weights_crc32c(session: Session) -> int:
    """Return a CRC32C over all weights of this rank's model."""
    crc = 0
    for weight in session.model.weights:
        crc = crc32c(np.ascontiguousarray(np.asarray(weight)).tobytes(), crc)
    return crc
