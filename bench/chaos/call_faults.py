"""What may happen to calls of Azure ML, as the emulator takes it."""

from __future__ import annotations

import random
from typing import Any

TIME_OUT_S = 31.0
"""A second more than the client waits for an answer."""
CHANGED_NAME = {
    "status": 400,
    "code": "UserError",
    "message": "A job with this name already exists. If you are trying to create a new job, use a different name. "
    "If you are trying to update an existing job, the existing job's command cannot be changed.",
    "inner": ["Immutable", "JobPropertyImmutable"],
    "effect_first": True,
}
"""As the service answers where it has the job already; here it takes the job and answers so."""
ANY_CALL: tuple[dict[str, Any], ...] = (
    {"status": 429, "retry_after_s": 1},
    {"status": 503},
    {"status": 503, "effect_first": True},
    {"drop": True},
    {"drop_after": True},
)
TARGETS = (("PUT", "/jobs/"), ("PUT", "/jobs/"), ("GET", "/jobs/"), ("PUT", "/models/"))
"""Submissions twice: they are what must not be doubled."""
SHARE_OF_TIME_OUTS, SHARE_OF_CHANGED_NAMES = 0.03, 0.25


def some_fault(dice: random.Random) -> dict[str, Any]:
    """Return a script for one call."""
    method, path = dice.choice(TARGETS)
    done = dict(dice.choice(ANY_CALL))
    if (method, path) == TARGETS[0]:
        fate = dice.random()
        if fate < SHARE_OF_TIME_OUTS:
            done = {"delay_after_s": TIME_OUT_S}
        elif fate < SHARE_OF_TIME_OUTS + SHARE_OF_CHANGED_NAMES:
            done = dict(CHANGED_NAME)
    return {"match": {"method": method, "path": path}, "times": 1, "do": done}
