"""What may happen to requests of storage, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence

from bench.chaos.storage_proxy import Draw, StorageFault

BLOBS_OF_THE_HOST, SENDING = "/azure-webjobs-", "POST"
"""The Functions host has blobs of its own, and the app only sends to queues. The host is not tried here."""
IN_A_ROW = (1, 1, 1, 6)
"""So many requests fail one after the other: mostly the SDK's first repetition helps; six are more than it makes."""


def some_faults(dice: random.Random, share: float, in_a_row: Sequence[int] = IN_A_ROW) -> Draw:
    """Return what lets a share of the requests fail, some of them until the SDK gives up."""
    left: list[StorageFault] = []

    def draw(service: str, verb: str, path: str) -> StorageFault | None:
        if BLOBS_OF_THE_HOST in path or (service == "queue" and verb != SENDING):
            return None
        if not left and dice.random() < share:
            fault = dice.choice(list(StorageFault))
            left.extend([fault] * dice.choice(in_a_row))
        return left.pop() if left else None

    return draw
