"""The faults of a storm: scripts for calls of Azure ML, and a draw for storage requests. Both follow from a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from tests.chaos.storage_proxy import Draw, StorageFault

TIME_OUT_S = 31.0
"""One second longer than the client waits for an answer."""
CHANGED_NAME = {
    "status": 400,
    "code": "UserError",
    "message": "A job with this name already exists. If you are trying to create a new job, use a different name. "
    "If you are trying to update an existing job, the existing job's command cannot be changed.",
    "inner": ["Immutable", "JobPropertyImmutable"],
    "effect_first": True,
}
"""The service's answer for a job that exists; here the emulator creates the job first and then answers this."""
ANY_CALL: tuple[dict[str, Any], ...] = (
    {"status": 429, "retry_after_s": 1},
    {"status": 503},
    {"status": 503, "effect_first": True},
    {"drop": True},
    {"drop_after": True},
)
TARGETS = (("PUT", "/jobs/"), ("PUT", "/jobs/"), ("GET", "/jobs/"), ("PUT", "/models/"))
"""Calls that may fail. Submissions are listed twice because they are what must not be repeated."""
SHARE_OF_TIME_OUTS, SHARE_OF_CHANGED_NAMES = 0.03, 0.25
"""Shares of the faults of submissions."""
HOST_BLOBS, SEND = "/azure-webjobs-", "POST"
"""Requests of the Functions host itself are spared: its blobs, and every queue request but sending."""
IN_A_ROW = (1, 1, 1, 6)
"""Lengths of a fault in requests: the SDK's first retry gets past one, and gives up before the end of six."""


def call_fault(dice: random.Random) -> dict[str, Any]:
    """Return a fault script for one call of Azure ML."""
    method, path = dice.choice(TARGETS)
    done = dict(dice.choice(ANY_CALL))
    if (method, path) == TARGETS[0]:
        fate = dice.random()
        if fate < SHARE_OF_TIME_OUTS:
            done = {"delay_after_s": TIME_OUT_S}
        elif fate < SHARE_OF_TIME_OUTS + SHARE_OF_CHANGED_NAMES:
            done = dict(CHANGED_NAME)
    return {"match": {"method": method, "path": path}, "times": 1, "do": done}


def storage_faults(dice: random.Random, share: float, in_a_row: Sequence[int] = IN_A_ROW) -> Draw:
    """Return a draw that starts a fault at a share of the requests; some faults outlast the SDK's retries."""
    left: list[StorageFault] = []

    def draw(service: str, verb: str, path: str) -> StorageFault | None:
        if HOST_BLOBS in path or (service == "queue" and verb != SEND):
            return None
        if not left and dice.random() < share:
            fault = dice.choice(list(StorageFault))
            left.extend([fault] * dice.choice(in_a_row))
        return left.pop() if left else None

    return draw
